"""Room: wire. What operators ask about clients of MQTT: who is there, what one does, and to end it."""

from typing import Annotated

import msgspec
from msgspec import Meta

from moorline.limits import (
    ADDRESS_LENGTH_MAX,
    MQTT_CLIENT_FILTERS_SHOWN_MAX,
    MQTT_CLIENT_ID_BYTES_MAX,
    MQTT_CLIENTS_PER_PAGE_MAX,
    MQTT_DROP_CAUSES_MAX,
)
from moorline.wire.bounds import FilterText, Name, Words
from moorline.wire.message import Answer, Call

# Postgres takes no NUL in a text, and MQTT none in a string.
ClientId = Annotated[str, Meta(max_length=MQTT_CLIENT_ID_BYTES_MAX, pattern=r"^[^\x00]*$")]


class MqttClientFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A client that is connected to the node that was asked, or whose session the catalog keeps."""

    client_id: Words
    principal: Words
    node: Name
    """The node that has it, or had it last."""
    is_connected: bool
    """To the node that was asked."""
    address: Annotated[str, Meta(max_length=ADDRESS_LENGTH_MAX)]
    version: Annotated[str, Meta(max_length=8)]
    expiry_s: int
    """How long its session outlives the connection."""
    connected_ms: int
    """For how long it has been connected."""
    filters: int
    in_flight: int
    """Messages that it has not acknowledged, or that wait for others to be acknowledged."""
    received: int
    """PUBLISHes of this connection that came, and that left."""
    sent: int
    dropped: Annotated[
        dict[Annotated[str, Meta(max_length=32)], int], Meta(max_length=MQTT_DROP_CAUSES_MAX)
    ]
    """By cause: denied, refused, not_retained, expired, too_large, lost, filters_denied."""


class ListMqttClients(Call, frozen=True, gc=False, tag=440):
    """A page of them by their ids, behind that one."""

    after: ClientId = ""
    count: Annotated[int, Meta(ge=1, le=MQTT_CLIENTS_PER_PAGE_MAX)] = MQTT_CLIENTS_PER_PAGE_MAX


class MqttClientsListed(Answer, frozen=True, gc=False, tag=441):
    clients: Annotated[tuple[MqttClientFacts, ...], Meta(max_length=MQTT_CLIENTS_PER_PAGE_MAX)]
    is_last: bool


class ShowMqttClient(Call, frozen=True, gc=False, tag=442):
    client_id: ClientId


class MqttClientShown(Answer, frozen=True, gc=False, tag=443):
    """`filters` are (filter, QoS), the first ones of many."""

    client: MqttClientFacts
    filters: Annotated[
        tuple[tuple[FilterText, int], ...], Meta(max_length=MQTT_CLIENT_FILTERS_SHOWN_MAX)
    ]


class KickMqttClient(Call, frozen=True, gc=False, tag=444):
    """Ends its connection, and with `ends_session` also what is kept of it. Answered by `Done`."""

    client_id: ClientId
    ends_session: bool = False


COMMANDS = ListMqttClients | ShowMqttClient | KickMqttClient
EVENTS = MqttClientsListed | MqttClientShown
