"""Room: sessions. What is looked at before a session, or a subscription of one, begins."""

import logging
from collections.abc import Iterable

from moorline.errors import ConnectionLost, LimitReached
from moorline.limits import SUBSCRIPTIONS_BYTES_MAX, SUBSCRIPTIONS_MAX
from moorline.sessions.session import TopicSession
from moorline.wire.topic import OpenSession

log = logging.getLogger("moorline.groups")


def check_room(own: TopicSession, filter_text: str) -> None:
    """One more subscription: all of them must fit the answer to whoever opens the session again."""
    own.check_place()
    if len(own.subscriptions) >= SUBSCRIPTIONS_MAX:
        raise LimitReached(
            f"a session has at most {SUBSCRIPTIONS_MAX} subscriptions: unsubscribe from some, or use "
            "wildcards or another session"
        )
    filters = [filter_text, *(one.filter for one in own.subscriptions.values())]
    if sum(len(one.encode()) for one in filters) > SUBSCRIPTIONS_BYTES_MAX:
        raise LimitReached(
            f"the filters of a session have at most {SUBSCRIPTIONS_BYTES_MAX} bytes together: unsubscribe "
            "from some, or use wildcards or another session"
        )


def session_opened(call: OpenSession) -> Iterable[str]:
    return (path_of_session(call.name),)


def path_of_session(name: str) -> str:
    return f"/sessions/{name}"


def passed_over(own: TopicSession, filter_text: str, code: str) -> None:
    """It keeps its place in the catalog, and goes on where it was if the right, or room, comes back."""
    log.info(
        "a subscription of a session does not go on",
        extra={"member": own.name, "filter": filter_text, "code": code},
    )


def check_open(own: TopicSession) -> None:
    """A client that goes while the catalog is asked must not become a member that nobody hears of."""
    if not own.is_open:
        raise ConnectionLost("the client went while its call was at work")
