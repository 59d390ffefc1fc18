"""Any packet that may be said, by each end, in each version."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from moorline.core.mqtt.packets import (
    MQTT_5,
    NONE,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from moorline.core.mqtt.reason import ReasonCode
from moorline.wire.mqtt import reasons
from moorline.wire.mqtt.properties import TABLE, Carrier

LEVELS = (3, 4, 5)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
topics = st.text(
    st.characters(codec="utf-8", exclude_characters="\0+#"),
    min_size=1,
    max_size=12,
)
filters = texts.filter(bool)
packet_ids = st.integers(1, 65_535)
# From nothing to more than one byte of a length can say, and more than two.
payloads = st.one_of(
    st.binary(max_size=20), st.sampled_from([b"x" * 127, b"y" * 128, b"z" * 16_384])
)

_OF_KIND: dict[str, st.SearchStrategy[Any]] = {
    "payload_format": st.integers(0, 1),
    "response_topic": topics,
    "subscription_identifiers": st.lists(st.integers(1, 268_435_455), max_size=1).map(tuple),
    "user": st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    "correlation_data": st.binary(max_size=8),
    "authentication_data": st.binary(max_size=8),
    "receive_max": st.integers(1, 65_535),
    "topic_alias": st.integers(1, 65_535),
    "topic_alias_max": st.integers(0, 65_535),
    "server_keep_alive_s": st.integers(0, 65_535),
    "packet_bytes_max": st.integers(1, 0xFFFF_FFFF),
}


def _values(name: str) -> st.SearchStrategy[Any]:
    if name in _OF_KIND:
        return _OF_KIND[name]
    if name.endswith("_s"):
        return st.integers(0, 0xFFFF_FFFF)
    if name.startswith("request_") or name.endswith(("_available", "qos_max")):
        return st.integers(0, 1)
    return texts


@st.composite
def properties(draw: st.DrawFn, carrier: Carrier, level: int) -> Properties:
    if level != MQTT_5 or draw(st.booleans()):
        return NONE
    named = [one.name for one in TABLE if one.carriers & carrier]
    chosen = draw(st.lists(st.sampled_from(named), unique=True, max_size=5))
    found: dict[str, Any] = {name: draw(_values(name)) for name in chosen}
    if carrier is Carrier.DELIVERED and "subscription_identifiers" in found:
        found["subscription_identifiers"] *= 2
    if "authentication_data" in found and carrier is Carrier.CONNECT:
        found.setdefault("authentication_method", "a")
    made = Properties(**found)
    return NONE if made == NONE else made


def _reasons(among: dict[int, ReasonCode], level: int) -> st.SearchStrategy[ReasonCode]:
    return st.sampled_from(list(among.values()) if level == MQTT_5 else [ReasonCode.SUCCESS])


def _acks(kind: Callable[..., Packet], among: dict[int, ReasonCode], carrier: Carrier) -> Any:
    def at(level: int) -> st.SearchStrategy[Packet]:
        return st.builds(kind, packet_ids, _reasons(among, level), properties(carrier, level))

    return at


@st.composite
def connects(draw: st.DrawFn, level: int) -> Connect:
    user_name = draw(st.none() | texts)
    password = (
        draw(st.none() | st.binary(max_size=8)) if level == 5 or user_name is not None else None
    )
    wills = st.builds(
        Will, topics, payloads, st.integers(0, 2), st.booleans(), properties(Carrier.WILL, level)
    )
    return Connect(
        level,
        draw(texts),
        draw(st.booleans()),
        draw(st.integers(0, 65_535)),
        draw(st.none() | wills),
        user_name,
        password,
        draw(properties(Carrier.CONNECT, level)),
        draw(st.booleans()) if level < MQTT_5 else False,
    )


@st.composite
def publishes(draw: st.DrawFn, level: int, carrier: Carrier = Carrier.PUBLISH) -> Publish:
    qos = draw(st.integers(0, 2))
    said = draw(properties(carrier, level))
    topic = draw(topics)
    if said.topic_alias is not None and draw(st.booleans()):
        topic = ""
    packet_id = draw(packet_ids) if qos else 0
    dup = draw(st.booleans()) if qos else False
    return Publish(topic, draw(payloads), qos, draw(st.booleans()), dup, packet_id, said)


@st.composite
def subscribes(draw: st.DrawFn, level: int) -> Subscribe:
    flags = st.booleans() if level == MQTT_5 else st.just(False)
    one = st.builds(
        Subscription,
        filters.filter(lambda text: not text.startswith("$")),
        st.integers(0, 2),
        flags,
        flags,
        st.integers(0, 2) if level == MQTT_5 else st.just(0),
    )
    some = draw(st.lists(one, min_size=1, max_size=4))
    return Subscribe(draw(packet_ids), tuple(some), draw(properties(Carrier.SUBSCRIBE, level)))


def unsubscribes(level: int) -> st.SearchStrategy[Unsubscribe]:
    some = st.lists(filters, min_size=1, max_size=4).map(tuple)
    return st.builds(Unsubscribe, packet_ids, some, properties(Carrier.UNSUBSCRIBE, level))


def subacks(level: int) -> st.SearchStrategy[Suback]:
    old = {code: ReasonCode(code) for code in (0, 1, 2, 0x80)}
    codes = st.sampled_from(list((reasons.SUBSCRIBED if level == MQTT_5 else old).values()))
    some = st.lists(codes, min_size=1, max_size=4).map(tuple)
    return st.builds(Suback, packet_ids, some, properties(Carrier.SUBACK, level))


def unsubacks(level: int) -> st.SearchStrategy[Unsuback]:
    if level != MQTT_5:
        return st.builds(Unsuback, packet_ids)
    codes = st.sampled_from(list(reasons.UNSUBSCRIBED.values()))
    some = st.lists(codes, min_size=1, max_size=4).map(tuple)
    return st.builds(Unsuback, packet_ids, some, properties(Carrier.UNSUBACK, level))


def connacks(level: int) -> st.SearchStrategy[Connack]:
    old = {code: reasons.connack_of_old(code) for code in range(6)}
    codes = list((reasons.CONNECTED if level == MQTT_5 else old).values())
    return st.builds(
        Connack, st.sampled_from(codes), st.booleans(), properties(Carrier.CONNACK, level)
    )


def _goodbyes(level: int) -> st.SearchStrategy[Disconnect]:
    return st.builds(
        Disconnect, _reasons(reasons.GOODBYES, level), properties(Carrier.DISCONNECT, level)
    )


def _dismissals(level: int) -> st.SearchStrategy[Disconnect]:
    return st.builds(
        Disconnect, _reasons(reasons.DISMISSED, level), properties(Carrier.DISCONNECT, level)
    )


def _proofs(level: int) -> st.SearchStrategy[Auth]:
    return st.builds(Auth, _reasons(reasons.PROOFS, level), properties(Carrier.AUTH, level))


def _challenges(level: int) -> st.SearchStrategy[Auth]:
    return st.builds(Auth, _reasons(reasons.CHALLENGES, level), properties(Carrier.AUTH, level))


_BOTH: dict[str, Any] = {
    "PUBACK": _acks(Puback, reasons.STORED, Carrier.PUBACK),
    "PUBREC": _acks(Pubrec, reasons.STORED, Carrier.PUBREC),
    "PUBREL": _acks(Pubrel, reasons.RELEASED, Carrier.PUBREL),
    "PUBCOMP": _acks(Pubcomp, reasons.RELEASED, Carrier.PUBCOMP),
}
OF_CLIENT: dict[str, Callable[[int], st.SearchStrategy[Packet]]] = {
    **_BOTH,
    "CONNECT": connects,
    "PUBLISH": publishes,
    "SUBSCRIBE": subscribes,
    "UNSUBSCRIBE": unsubscribes,
    "PINGREQ": lambda _: st.just(Pingreq()),
    "DISCONNECT": _goodbyes,
    "AUTH": _proofs,
}
OF_SERVER: dict[str, Callable[[int], st.SearchStrategy[Packet]]] = {
    **_BOTH,
    "CONNACK": connacks,
    "PUBLISH": lambda level: publishes(level, Carrier.DELIVERED),
    "SUBACK": subacks,
    "UNSUBACK": unsubacks,
    "PINGRESP": lambda _: st.just(Pingresp()),
    "DISCONNECT": _dismissals,
    "AUTH": _challenges,
}


def kinds(level: int, hears_server: bool) -> list[str]:
    """All types that one end may say in a version."""
    return [
        name
        for name in (OF_SERVER if hears_server else OF_CLIENT)
        if name != "AUTH" or level == MQTT_5
    ]


def any_packet(level: int, hears_server: bool = False) -> st.SearchStrategy[Packet]:
    of_end = OF_SERVER if hears_server else OF_CLIENT
    return st.one_of([of_end[name](level) for name in kinds(level, hears_server)])
