"""The client that stays."""

from moorline.limits.units import KIB

CLIENT_RETURN_MS = 500
"""A client that was cut dials again within it, by chance; it doubles with each round that leads to nobody.
10,000 of them come at 20 in a millisecond at most, which a node welcomes."""

CLIENT_RETURN_MS_MAX = 15_000
"""The same behind many rounds: a node that is back is found soon, and one that is away is asked rarely."""

CLIENT_DEADLINE_S = 60.0
"""How long a call of a client that stays may take, with all the time that no node is there."""

CLIENT_ASKS_MAX = 65_536
"""Calls of one client that wait for a node or an answer: more are refused, and nothing of them was done."""

CLIENT_SERVICE_TRIES = 8
"""Times that a service is entered on one connection while the node says that it cannot just now."""

CLIENT_PLACES_MAX = 64
"""Addresses that one client is given."""

CLIENT_EVENTS_MAX = 1_024
"""Events that one reader of them has not taken; the oldest go first, and are counted."""

CLIENT_SHARDS_MAX = 16_384
"""Shards of which a plain subscription says where it was; so many fit a frame."""

CLIENT_RANGES_MAX = 32_768
"""The same for all shards of it together: half a frame."""

CLIENT_CURSOR_RANGES_MAX = 1_024
"""Ranges done above the mark that a resumed subscription names for one shard: what is above comes again."""

PUBLISH_BATCH_BYTES = 256 * KIB
"""Bytes of messages that the client publishes in one call."""

PUBLISH_BATCH_MAX = 1_000
"""Messages that the client publishes in one call."""

PUBLISH_BATCHES_AT_ONCE = 64
"""Batches of one `publish_all` that are in memory: 16 MiB at most, and enough that the node never waits."""

PUBLISH_BATCHES_IN_FLIGHT = 8
"""Batches of lines that `moor topic publish` has sent and that are not answered: the next ones are made while
the node stores these."""
