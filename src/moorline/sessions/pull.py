"""Room: sessions. Members that hold streams and read them by themselves, as a query of Spark does.

Such a subscription gets feeds and no messages. Its member says how far it takes each of them, reads
those ranges from the nodes that have them, and acknowledges them when their batch is complete. A feed that
is stopped gives no more: so it is drained at the end of a batch.
"""

from collections.abc import Iterable

from moorline.core.topic import Mode, SharedName
from moorline.errors import BadTopic
from moorline.sessions.delivery_host import DeliveryHost
from moorline.sessions.subscription import Subscription
from moorline.topics.directory import StreamDirectory
from moorline.wire.pull import MessagesTaken, TakeMessages
from moorline.wire.topic import SubscribeTopic


def check_hold(
    call: SubscribeTopic,
    group: SharedName | None,
    known: Iterable[Subscription],
    *,
    is_durable: bool,
) -> None:
    """Refuses what nobody can hold, and a change of mind about it."""
    if group is not None and any(
        one.group == group and not one.is_leaving and one.window.is_held != call.hold
        for one in known
    ):
        raise BadTopic(f"{call.filter!r} is subscribed already, with another hold")
    if not call.hold:
        return
    if group is None or group.mode is not Mode.SHARED:
        raise BadTopic(
            f"{call.filter!r} cannot be held: only a $shared group has streams for its members; "
            "a $queue group hands out single messages"
        )
    if is_durable:
        raise BadTopic("a durable session cannot hold: its subscriptions come back with messages")
    if call.qos == 0:
        raise BadTopic("who holds acknowledges: use qos 1")


def take(
    delivery: DeliveryHost | None, directory: StreamDirectory, call: TakeMessages
) -> MessagesTaken:
    """What a member takes is out from now on; of a feed that is over or stopped that is nothing."""
    one = delivery.machine.feeds.get(call.feed) if delivery is not None else None
    if delivery is None or one is None:
        return MessagesTaken(call.call, [], 0)
    if not one.window.is_held:
        raise BadTopic(f"the messages of feed {call.feed} are delivered: subscribe with hold")
    stream = one.feed.stream
    # A message that is not stored yet cannot be done: no member may go beyond the end.
    end = next(
        (extent.end for extent in directory.extents(stream.shard) if extent.stream == stream), 0
    )
    ranges, upto = delivery.pull(call.feed, min(call.upto, end), call.count)
    return MessagesTaken(call.call, ranges, upto)
