"""Room: mqtt. What happened, in figures: of one client, and of the node. Nothing is dropped without one."""

import msgspec


class Counts(msgspec.Struct):
    """What a client did and got. Those of a node are the sums, kept beside."""

    received: int = 0
    """PUBLISHes that came."""
    sent: int = 0
    """PUBLISHes that left."""
    received_bytes: int = 0
    sent_bytes: int = 0
    denied: int = 0
    """PUBLISHes that no grant covers: refused with their code, and dropped where a version has none."""
    refused: int = 0
    """PUBLISHes that a bound, a quota or a full disk refused."""
    not_retained: int = 0
    """Messages that were stored, and not retained, since the bound of retained bytes is reached."""
    expired: int = 0
    """Messages that expired before they could be sent."""
    too_large: int = 0
    """Messages that are larger than the client takes."""
    lost: int = 0
    """Messages that retention or damage took before the client had them."""
    filters_denied: int = 0
    """Filters that let nothing through any more, since they are not granted."""


class NodeCounts(Counts):
    """Of all clients since the start, with what has no client."""

    received_publishes: int = 0
    """Of clients that are gone."""
    most_clients: int = 0
    """That were connected at once."""
    connected: int = 0
    """CONNECTs that were accepted."""
    violations: int = 0
    """Connections that ended for a breach of the protocol."""
    taken_over: int = 0
    kicked: int = 0
    timeouts: int = 0
    wills: int = 0
