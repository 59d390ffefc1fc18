"""Groups, sessions and the retained messages."""

CURSOR_RANGES_MAX = 65_536
"""Ranges, and failures, of one place: at most one hole for each message that a member may have in hand."""

BORROWER_LEASES_MAX = 65_536
"""Leases in the last word of a Borrower: one for each shard of sixty-four of the largest nodes."""

LEASES_REMEMBERED_MAX = 4_096
"""Leases that are over and that a Borrower remembers, to know a late grant: minutes of a busy queue."""

DELIVERIES_MAX = 1_000_000
"""Failed deliveries that a group may allow a message."""

MEMBER_LENGTH_MAX = 512
"""Characters of a member's name: a session's, with its node's before it."""

BORROWERS_MAX = 1_024
"""Members of one group: five times what other systems take."""

GROUP_LOAD_LEAST = 100
"""Messages a second of a member on average: where less comes, it does not matter who reads which stream."""

GROUP_LOAD_RESTS = 6
"""Looks at the loads for which a stream stays with whoever it came to: loads that come and go by turns must
not send it to and fro."""

BORROWERS_DEPARTED_MAX = 4_096
"""Borrowers that went and that a Leader remembers, so that a late word of theirs does not bring them back."""

BORROWERS_STRANGE_MAX = 64
"""Those of them that a Leader never knew: only a question that was overtaken by its goodbye needs them."""

QUEUE_SLICE_MAX = 256
"""Messages of one lock of a `$queue` group: a frame of the wire of usual ones."""

RANGES_PER_TAKE_MAX = 10_000
"""Ranges of one answer: some 200 KB. A stream has more only where members left that many holes."""

LOST_RANGES_MAX = 1_024
"""Losses that a client confirms in one message; ours confirms each by itself."""

FEED_LOSSES_MAX = 512
"""Losses of one lease that its reports carry, or that its client has not confirmed: some 16 KB. Then nothing
more is read under it, and the Leader gives the stream under a new lease. A `$queue` lock has fewer."""

LEASE_LOSSES_MAX = 65_536
"""The same on the wire: the loss that brings a feed to that bound may itself be of many pieces, one for each
hole between what the client has in hand."""

DISCONNECT_LOSSES_MAX = 8_192
"""Losses of all leases in the last word of a Borrower: some 250 KB. Its reports have said them before."""

CLAIM_PAUSE_MS = 50
"""Pause before a group that nobody seems to lead is claimed again."""

STOP_LEADERS_MS_MAX = 1_500
"""Time at a stop for Leaders to store what they know; a catalog that is away must not hold the node."""

STOP_SESSIONS_MS_MAX = 1_000
"""Time at a stop for the last commits of durable sessions; with the Leaders' within a quarter of a stop."""

GROUPS_LED_MAX = 4_096
"""Groups that one node leads at once."""
