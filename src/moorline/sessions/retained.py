"""Room: sessions. The retained messages of a subscription that begins."""

from collections.abc import Generator, Iterator

from moorline.core.frames.frame import stored_at
from moorline.net.session import Session
from moorline.net.slices import in_slices
from moorline.sessions.session import TopicSession
from moorline.topics.commands import TopicBroker
from moorline.topics.directory import StreamDirectory
from moorline.topics.retained import newest_retained
from moorline.wire.topic import RetainedMessage


async def send_retained(
    topics: TopicBroker,
    directory: StreamDirectory,
    own: TopicSession,
    session: Session,
    number: int,
    filter_text: str,
) -> None:
    principal = session.rights.principal
    ours = await topics.retained(filter_text, principal)
    theirs = await directory.retained(filter_text)
    frames = iter(await in_slices(newest_retained(ours, theirs), principal))
    now_us = topics.streams.clock.expiry_us()
    while await in_slices(_push_retained(own, session, number, frames, now_us), principal):
        await session.room_to_write()


def _push_retained(
    own: TopicSession, session: Session, number: int, frames: Iterator[bytes], now_us: int
) -> Generator[None, None, bool]:
    """Whether its client must read before there is room for more."""
    for frame in frames:
        if number not in own.subscriptions:
            break  # it was ended meanwhile, perhaps because it may not read this any more
        message = stored_at(frame, 0)
        if not message.ttl_s or message.time_us + message.ttl_s * 1_000_000 > now_us:
            session.push(RetainedMessage(number, frame), len(frame))
        if not session.writable:
            return session.is_open
        yield
    return False
