"""Services and their digests."""

BLOCK_BYTES_MAX = 16_384
"""Largest message of a reconciliation: a block of the specification."""

SERVICE_PAYLOAD_BYTES_MAX = 1 << 30
"""Largest sketch or list that a client takes: the list of a hundred million queues."""

SERVICE_WINDOW_MAX = 64
"""Unacknowledged messages of one queue on their way to a service."""

SERVICE_IN_FLIGHT_MAX = 16_384
"""Unacknowledged messages of all queues on their way to one service: two full frames of work."""

SERVICE_PAGE_QUEUES = 10_000
"""Queues of a service that are looked at together for waiting messages: 240 KB."""

SERVICE_CHECK_QUEUES = 16_384
"""Queues of a service that are hashed anew together, about: 700 KB, and two milliseconds of the loop."""

REHASH_BATCH = 100_000
"""Associations with a wrong hash that are put right in one transaction: a few seconds."""

WRONG_QUEUES_TOLD_MAX = 100
"""Those of them that an answer names: 2.6 KB."""

SERVICE_SKETCHES_MAX = 64
"""Services whose sketch (121 KB) a node keeps in memory."""

SERVICE_PARTS_PER_PAGE = 8
"""Homes, each with its addresses, that one answer about the parts of a service names: below a block."""

SERVICE_PARTS_MAX = 256
"""Homes at which a client keeps a part of its service: HOMES_FOLLOWED_MAX, since each needs a connection."""

SERVICE_PARTS_TOGETHER = 8
"""Parts that a client brings to agreement at once; each may hold a sketch of 121 KB and a page of queues."""

SERVICE_EPOCHS_LOOK_MS = 1_000
"""A node looks so often whether its services were taken over at other nodes: one statement for all of
them. So long, at most, an older session may still be sent what the newer one will be sent again."""

SERVICE_ADOPTED_TOGETHER = 5_000
"""Associations of before there were parts that a node takes into its own by one statement."""

SERVICE_PART_RETRY_MS, SERVICE_PART_RETRY_MS_MAX = 500, 10_000
"""Pauses before a home that is away is tried again: the first one, and the longest, each jittered by half."""

ROUTE_MS_MAX = 5_000
"""Time for which a node remembers whose a queue is; a change elsewhere is noticed after this."""

ROUTE_RETRY_MS = 500
"""Pause before a catalog that did not answer is asked again."""

ROUTES_MAX = 65_536
"""Queues whose service a node remembers."""
