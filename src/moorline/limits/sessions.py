"""Sessions and their subscriptions."""

from moorline.limits.units import KIB

SESSION_TURN_MS = 5
"""Time for which the node handles what one client said before others get a turn: little beside an fsync."""

SESSION_NAME_BYTES_MAX = 256
"""Longest name of a session."""

SESSION_EXPIRY_S_MAX = 10**8
"""Longest time that a durable session is kept without its client: three years."""

PRIVATE_COMMIT_MS = 100
"""Pause between two commits of the places of a durable session."""

SUBSCRIPTIONS_MAX = 1_024
"""Subscriptions of one session."""

SUBSCRIPTIONS_BYTES_MAX = 768 * KIB
"""Filters of one session: whoever opens it again is told all of them in one answer. With some 13 bytes for
each of SUBSCRIPTIONS_MAX beside its text they fit a frame; without this, 1,024 of the longest would not."""

FAR_FUTURE_US = (1 << 62) - 1
"""A time after all messages: the offset at it is the end."""

SESSIONS_KEPT_MS = 5_000
"""Time between two signs of life of the durable sessions of a node."""

SESSION_EXPIRY_S_MIN = -(-3 * SESSIONS_KEPT_MS // 1_000)
"""Shortest time that a durable session is kept: three signs of life, so that one that is late or lost does
not let a session expire under its client."""

SESSIONS_EXPIRED_PER_CALL_MAX = 1_000
"""Sessions that one call removes: with some ten subscriptions each, well below a second."""

OPERATION_MS_MAX = 15_000
"""Time beyond a lease in which an operator's call may have its effect, by the catalog's clock."""

OPERATOR_LENGTH_MAX = 512
"""Characters of an operator's name that are passed on and written down with what it asks for."""

SESSIONS_PER_PAGE_MAX = 1_000
"""Rows of one answer to a list of sessions."""
