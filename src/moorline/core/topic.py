"""Room: core. Names and filters of topics, as MQTT 5 (4.7, 4.8.2) has them, and shared subscriptions' names.

check_topic("orders/eu")                  a name: no wildcards
check_filter("orders/+/#")                + is one level, # is all that follow
matches("orders/#", "orders/eu")          True; "#" does not match "$dead/…"
shared_name("$shared/billing/orders/#")   a group and the filter it reads
"""

import re
from enum import Enum

import msgspec

from moorline.errors import BadTopic
from moorline.limits import (
    GROUP_NAME_BYTES_MAX,
    TOPIC_BYTES_MAX,
    TOPIC_LEVELS_MAX,
)

DEAD_PREFIX = "$dead/"


class Mode(Enum):
    """How the members of a group share: whole streams, or single messages."""

    SHARED = "shared"
    QUEUE = "queue"


# `$share` is that of MQTT 5 (4.8.2), `$shared` and `$queue` are those of the specification of groups.
_PREFIXES = {"$shared": Mode.SHARED, "$share": Mode.SHARED, "$queue": Mode.QUEUE}


class SharedName(msgspec.Struct, frozen=True, order=True):
    """What identifies a group: `$share` and `$shared` are the same."""

    mode: Mode
    group: str
    filter: str

    def __str__(self) -> str:
        return f"${self.mode.value}/{self.group}/{self.filter}"


def check_topic(topic: str) -> None:
    """Refuses what cannot be published to."""
    _check_text(topic, "topic")
    if "+" in topic or "#" in topic:
        raise BadTopic(f"{topic!r} has a wildcard: + and # belong in filters, not in topics")
    # A message stored under such a name could be read by no filter: whoever subscribes to it means the
    # group.
    if topic.split("/", 1)[0] in _PREFIXES:
        raise BadTopic(f"{topic!r} is the name of a group, which can be read and not published to")


def check_filter(text: str) -> None:
    """Refuses what matches nothing by its form."""
    _check_text(text, "filter")
    levels = text.split("/")
    for depth, level in enumerate(levels):
        if "#" in level and (level != "#" or depth != len(levels) - 1):
            raise BadTopic(f"{text!r}: # stands alone, at the end")
        if "+" in level and level != "+":
            raise BadTopic(f"{text!r}: + stands alone between two /")


def shared_name(text: str) -> SharedName | None:
    """The group that a subscription names, or None if it is a plain filter."""
    prefix, _, rest = text.partition("/")
    mode = _PREFIXES.get(prefix)
    if mode is None:
        return None
    group, _, filter_text = rest.partition("/")
    accepted = f"{text!r}: a group's name has 1 to {GROUP_NAME_BYTES_MAX} bytes without + # and /"
    if not group or "+" in group or "#" in group:
        raise BadTopic(accepted)
    # That it is text at all comes before its bytes are counted: half a character has none.
    _check_text(group, "group's name")
    if len(group.encode()) > GROUP_NAME_BYTES_MAX:
        raise BadTopic(accepted)
    check_filter(filter_text)
    # It would be a group that nobody can publish to, and that looks like one of two members.
    if filter_text.split("/", 1)[0] in _PREFIXES:
        raise BadTopic(f"{text!r}: a group reads topics, not another group")
    return SharedName(mode, group, filter_text)


def matches(text: str, topic: str) -> bool:
    """Whether a checked filter takes a checked topic."""
    if topic.startswith("$") and text[0] in "+#":
        return False  # MQTT 5, 4.7.2
    # Empty levels are levels (MQTT 5, 4.7.3): `/a` and `a` are two topics, so nothing is stripped.
    wanted, given = text.split("/"), topic.split("/")
    for depth, level in enumerate(wanted):
        if level == "#":
            return True
        if depth == len(given) or level not in ("+", given[depth]):
            return False
    return len(wanted) == len(given)


class Matcher:
    """A filter, ready to be asked often. It remembers no topics: there is one for each subscription, and
    publishers invent as many names as they like."""

    __slots__ = ("_fits", "filter", "takes_all")

    def __init__(self, text: str) -> None:
        self.filter = text
        self.takes_all = text == "#"
        # One call into C in place of two splits and a loop. A pattern has no two repetitions side by side,
        # so no topic can make it go back and forth.
        self._fits = re.compile(_pattern(text), re.DOTALL).fullmatch

    def __call__(self, topic: str) -> bool:
        return self._fits(topic) is not None


def _pattern(text: str) -> str:
    """The same as `matches`, as a regular expression."""
    levels = text.split("/")
    known = ["[^/]*" if level == "+" else re.escape(level) for level in levels]
    # MQTT 5, 4.7.2
    before = r"(?!\$)" if text[0] in "+#" else ""
    if levels[-1] != "#":
        return before + "/".join(known)
    if len(levels) == 1:
        return before + ".*"
    return before + "/".join(known[:-1]) + "(?:/.*)?"


def _check_text(text: str, what: str) -> None:
    try:
        # By bytes, as MQTT counts (1.5.4), and as it is stored.
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadTopic(f"this {what} is not text") from None
    if not 1 <= size <= TOPIC_BYTES_MAX:
        raise BadTopic(f"a {what} has 1 to {TOPIC_BYTES_MAX} bytes, this one has {size}")
    # MQTT 5, 4.7.3. Rights rely on it too: a level that nobody can name stands for all that are not named
    # (core/access/row.py).
    if "\0" in text:
        raise BadTopic(f"a {what} has no zero character")
    # Trees of topics and of rights have a node for each level.
    if text.count("/") >= TOPIC_LEVELS_MAX:
        raise BadTopic(f"a {what} has at most {TOPIC_LEVELS_MAX} levels")
