"""Room: topics. The paths at which rights to topics and groups are asked for, and what nobody may write."""

from collections.abc import Iterable
from typing import Final

from moorline.access.guard import denied
from moorline.core.access.right import WRITE
from moorline.core.access.row import RESERVED
from moorline.core.topic import shared_name
from moorline.errors import BadTopic
from moorline.wire.topic import ListTopics, Publish, SubscribeTopic

TOPICS: Final = "/topics"
GROUPS: Final = "/groups"


def path_of_topic(text: str) -> str:
    """Of a topic, or of a filter."""
    return f"{TOPICS}/{text}"


def path_of_group(group: str) -> str:
    return f"{GROUPS}/{group}"


def check_reserved(topic: str, right: int = WRITE) -> None:
    """Refuses one that only nodes publish to, whatever the rows say."""
    if topic.partition("/")[0] in RESERVED:
        raise denied(right, path_of_topic(topic))


def all_topics(_: object) -> Iterable[str]:
    return (TOPICS,)


def all_groups(_: object) -> Iterable[str]:
    return (GROUPS,)


def topics_published(calls: list[Publish]) -> list[str]:
    if len(calls) == 1:
        return [record.topic for record in calls[0].records]
    return [record.topic for call in calls for record in call.records]


def topics_listed(call: ListTopics) -> Iterable[str]:
    return (path_of_topic(call.filter),)


def topics_subscribed(call: SubscribeTopic) -> Iterable[str]:
    return (path_of_topic(filter_read(call.filter)),)


def filter_read(text: str) -> str:
    """The filter that a subscription reads by: its own, or that of its group."""
    try:
        group = shared_name(text)
    except BadTopic:
        # The handler says what is wrong with it, to those who may read everything.
        return text
    return text if group is None else group.filter
