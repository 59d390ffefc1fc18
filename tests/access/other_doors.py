"""Who may do what by MQTT and over the HTTP port: the same callers and the same things, at other doors."""

import http.client
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import msgspec
from tests.mqtt.wire_client import WireClient
from tests.process.nodes import NodeProcess
from tests.process.proving import audited
from tests.waiting import until

from moorline.core.mqtt.packets import Connack, Publish, Will
from moorline.core.mqtt.reason import ReasonCode
from moorline.wire.records import Subscribe, TableSubscription

GRANTED, DENIED = "granted", "denied"
NO_WAY = "—"
"""Nodes speak the native protocol alone: there is no proof of one here."""

REFUSED = frozenset(
    {
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD,
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    }
)
TOPIC, CLIENT, WILLS = "owner/t", "owner-device", "owner/will"

PAGES = ("/", "/livez", "/readyz", "/healthz", "/metrics", "/console/", "/not-there")
POLL = msgspec.json.encode(Subscribe(1, [TableSubscription("t")]))
"""Of a table that is not there: what is refused of it is in the answer."""

Tokens = Mapping[str, str]
Table = dict[str, dict[str, str]]


class Doors:
    """A node with an address of MQTT that is not taken for this machine's own."""

    def __init__(self, node: NodeProcess, tokens: Tokens) -> None:
        self.node = node
        self._tokens = tokens
        found = [word for word in node.ready_line.split() if word.startswith("mqtt://")]
        host, _, port = found[-1].removeprefix("mqtt://").rpartition(":")
        self._elsewhere = host, int(port)

    def client(self, who: str, name: str) -> WireClient:
        return WireClient(self._elsewhere if who == "anonymous" else self.node.mqtt, name=name)

    def connect(
        self, who: str, client: WireClient, *, expiry_s: int = 0, will: Will | None = None
    ) -> Connack:
        token = self._tokens.get(who)
        return client.connect(
            user=None if token is None else who,
            password=None if token is None else token.encode(),
            clean=not expiry_s,
            expiry_s=expiry_s,
            will=will,
        )

    def headers(self, who: str) -> dict[str, str]:
        token = self._tokens.get(who)
        if token is not None:
            return {"Authorization": f"Bearer {token}"}
        # A page in a browser: nobody, also on this machine.
        return {"Origin": self.node.http}


def found_by_mqtt(doors: Doors, callers: tuple[str, ...]) -> Table:
    """Each row is a connection of its own."""
    with doors.client("owner", CLIENT) as own:
        assert doors.connect("owner", own, expiry_s=600).reason is ReasonCode.SUCCESS
    rows: dict[str, Callable[[str], ReasonCode | None]] = {
        "CONNECT of a new client": lambda who: _connected(doors, who, f"new-{who}"),
        "CONNECT of a session that lasts": lambda who: _connected(doors, who, f"lasts-{who}", 600),
        "CONNECT by the client id of `owner`": lambda who: _connected(
            doors, who, CLIENT, 600 if who == "owner" else 0
        ),
        "PUBLISH": lambda who: _published(doors, who, TOPIC),
        "PUBLISH, retained": lambda who: _published(doors, who, TOPIC, retain=True),
        "PUBLISH to `$SYS/x`": lambda who: _published(doors, who, "$SYS/x"),
        "PUBLISH to `$dead/x`": lambda who: _published(doors, who, "$dead/x"),
        "SUBSCRIBE": lambda who: _subscribed(doors, who, TOPIC),
        "SUBSCRIBE to all": lambda who: _subscribed(doors, who, "#"),
        "SUBSCRIBE as a member": lambda who: _subscribed(doors, who, f"$share/owner/{TOPIC}"),
        "SUBSCRIBE to the audit": lambda who: _subscribed(doors, who, "$SYS/audit/#"),
        "SUBSCRIBE to dead letters": lambda who: _subscribed(doors, who, "$dead/#"),
    }
    return {
        label: {who: NO_WAY if who == "node" else _outcome(asked(who)) for who in callers}
        for label, asked in rows.items()
    }


async def found_of_wills(doors: Doors, callers: tuple[str, ...]) -> Table:
    """A will is judged when it is published, and tells nobody but the audit: to be asked in peace, while
    nobody has so many refusals that they are added up."""
    cells: dict[str, str] = {}
    with doors.client("operator", "heir") as heir:
        doors.connect("operator", heir)
        heir.subscribe(f"{WILLS}/#")
        for who in callers:
            if who == "node":
                cells[who] = NO_WAY
                continue
            topic = f"{WILLS}/{who}"
            with doors.client(who, f"testator-{who}") as testator:
                doors.connect(who, testator, will=Will(topic, b"gone", 1))

            def is_refused(path: str = f"/topics/{topic}") -> bool:
                return any(line["path"] == path for line in audited(doors.node))

            def is_said(topic: str = topic) -> bool:
                heir.is_silent(Publish)
                return any(isinstance(one, Publish) and one.topic == topic for one in heir.heard)

            await until(lambda: is_said() or is_refused())
            cells[who] = GRANTED if is_said() else DENIED
    return {"a will": cells}


def found_by_http(doors: Doors, callers: tuple[str, ...]) -> Table:
    table: Table = {}
    for path in PAGES:
        asked = {who: _status(doors, who, "GET", path) for who in callers if who != "node"}
        table[f"`GET {path}`"] = _cells(asked, callers)
    path = "/records/poll"
    asked = {who: _status(doors, who, "POST", path, POLL) for who in callers if who != "node"}
    table[f"`POST {path}`"] = _cells(asked, callers)
    return table


def _cells(statuses: Mapping[str, int], callers: tuple[str, ...]) -> dict[str, str]:
    return {who: str(statuses[who]) if who in statuses else NO_WAY for who in callers}


def _status(doors: Doors, who: str, method: str, path: str, body: bytes | None = None) -> int:
    place = urlsplit(doors.node.http)
    assert place.hostname is not None
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
    try:
        connection.request(method, path, body, doors.headers(who))
        return connection.getresponse().status
    finally:
        connection.close()


def _connected(doors: Doors, who: str, name: str, expiry_s: int = 0) -> ReasonCode:
    with doors.client(who, name) as client:
        return doors.connect(who, client, expiry_s=expiry_s).reason


def _published(doors: Doors, who: str, topic: str, *, retain: bool = False) -> ReasonCode | None:
    with doors.client(who, f"publishes-{who}") as client:
        doors.connect(who, client)
        return client.publish(topic, b"m", 1, retain=retain)


def _subscribed(doors: Doors, who: str, text: str) -> ReasonCode:
    with doors.client(who, f"subscribes-{who}") as client:
        doors.connect(who, client)
        return client.subscribe(text).reasons[0]


def _outcome(reason: ReasonCode | None) -> str:
    assert reason is not None
    if reason in REFUSED:
        return DENIED
    return f"`{reason.name}`" if reason.is_failure else GRANTED
