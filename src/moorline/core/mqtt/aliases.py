"""Room: core/mqtt. Topic aliases that a client gives to its topics (MQTT 5, 3.3.2.3.4), on one connection.

Invariant, looked at by `check`:

    A1  no alias is above the maximum that the client was told, and none is 0
"""

from collections.abc import Sequence

import msgspec

from moorline.core.mqtt.packets import NONE, Properties, Publish
from moorline.core.mqtt.reason import ReasonCode, Violation


class Aliases:
    """They end with the connection: the next one begins with none."""

    __slots__ = ("_topics", "maximum")

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self._topics: dict[int, str] = {}

    def resolve(self, publishes: Sequence[Publish]) -> list[Publish]:
        """The same, with every topic written out and no alias."""
        found: list[Publish] = []
        try:
            for one in publishes:
                alias = one.properties.topic_alias
                found.append(one if alias is None else self._resolved(one, alias))
        except Violation as violation:
            violation.before = found
            raise
        return found

    def _resolved(self, one: Publish, alias: int) -> Publish:
        if not 0 < alias <= self.maximum:
            text = f"topic alias {alias}: at most {self.maximum} are taken"
            raise Violation(ReasonCode.TOPIC_ALIAS_INVALID, text)
        topic = one.topic
        if topic:
            self._topics[alias] = topic
        else:
            known = self._topics.get(alias)
            if known is None:
                text = f"topic alias {alias} stands for no topic on this connection"
                raise Violation(ReasonCode.PROTOCOL_ERROR, text)
            topic = known
        properties: Properties = msgspec.structs.replace(one.properties, topic_alias=None)
        # It is of this connection, and no part of the message: others must not see it.
        properties = NONE if properties == NONE else properties
        return msgspec.structs.replace(one, topic=topic, properties=properties)

    def check(self) -> None:
        """Asserts the invariant."""
        assert all(0 < alias <= self.maximum for alias in self._topics), f"A1: {self._topics}"
