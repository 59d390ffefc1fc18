"""Room: mqtt. Other nodes that clients of MQTT 5 can be sent to (server reference, MQTT 5, 4.11).

Any node serves any client, so mostly nobody is sent anywhere. There are three cases: this node stops, it
has no room, or the client has said PUBLISHes of QoS 2 whose end only the node of its last connection knows.
A node is named only if its operator says by which name clients reach it (`mqtt_reference`).
"""

import asyncio
import itertools
import logging

from moorline.catalog.mqtt_sessions import MqttSessions
from moorline.errors import MoorlineError
from moorline.limits import MQTT_REFERENCES_TOLD_MAX, NODE_GONE_MS, NODE_SEEN_MS

log = logging.getLogger("moorline.mqtt")


class Redirects:
    def __init__(self, sessions: MqttSessions, home: str, *, is_shared: bool) -> None:
        """`is_shared`: other nodes have the same catalog; otherwise there is nobody to be named."""
        self._sessions = sessions
        self._home = home
        self._is_shared = is_shared
        self._by_home: dict[str, str] = {}
        self._turn = itertools.count()

    def __bool__(self) -> bool:
        return bool(self._by_home)

    @property
    def others(self) -> str | None:
        """All of them, as the property says it: separated by spaces. Each client hears another one first."""
        known = list(self._by_home.values())
        if not known:
            return None
        first = next(self._turn) % len(known)
        return " ".join((known[first:] + known[:first])[:MQTT_REFERENCES_TOLD_MAX])

    def of(self, home: str) -> str | None:
        """The node of that home, if it lives."""
        return self._by_home.get(home)

    async def look_forever(self) -> None:
        while self._is_shared:
            try:
                self._by_home = await self._sessions.references(self._home, NODE_GONE_MS)
            except (MoorlineError, OSError) as error:
                log.debug("other nodes were not looked for", extra={"error": str(error)})
            await asyncio.sleep(NODE_SEEN_MS / 1_000)
