"""The audit trail, quotas and turns."""

from moorline.limits.units import KIB, MIB

AUDIT_SUM_MS = 10_000
"""Time for which refusals that are alike are added up: a person reads a line in ten seconds, not hundreds."""

AUDIT_QUIET_MS = 600_000
"""Logins without a proof, and of nodes, from one address are one line in that time behind the first: they
come all the time, and a person reads six lines in an hour."""

AUDIT_QUIET_SUMS_MAX = 1_000
"""Addresses whose logins of that kind are told apart at once; the others are one sum."""

AUDIT_SUMS_OPEN_MAX = 1_000
"""Sums that are open at once: some 500 KB, and what a flood makes the trail hold."""

AUDIT_SUMS_PER_PRINCIPAL_MAX = 32
"""Sums that one principal begins in AUDIT_SUM_MS; what else it is refused then is one sum. Far more than a
program does that was given too few rights."""

AUDIT_SUMS_BEGUN_MAX = 4_000
"""Sums that all begin in AUDIT_SUM_MS; the rest is one sum. Some 400 lines a second at most, however many
names a stranger invents: the files of the trail hold hours of it."""

AUDIT_ADDRESS_LENGTH_MAX = 64
"""Characters of an address: one of IPv6 with its port has 47."""

AUDIT_PRINCIPAL_LENGTH_MAX = 255
"""Characters of a principal, or of what a row of rights is about."""

AUDIT_PATH_LENGTH_MAX = 1_536
"""Characters of a path: the longest filter with a group before it, and the name of the tree."""

AUDIT_LINE_BYTES_MAX = 16 * KIB
"""Bytes of a line: all its texts at their bounds, in the longest encoding."""

AUDIT_BYTES_MAX = 1_024 * MIB
"""Size of all files of the trail: a year of a node that refuses little, hours of a flood."""

AUDIT_FILES_MAX = 64
"""Files of the trail, of 16 MiB each by default; the oldest goes when another is begun."""

AUDIT_LATE_MS = 500
"""Time for which lines are gathered before they are written; half of the second that is promised."""

AUDIT_PENDING_LINES_MAX = 8_192
"""Lines that wait for the disk, or for the stream: twenty seconds of the worst flood. More are counted."""

AUDIT_BATCH_LINES_MAX = 1_024
"""Lines that are written together: some 400 KB, 16 MiB at the very most."""

AUDIT_RETRY_MS = 1_000
"""Pause before a trail that could not be written is tried again, if nothing happens before."""

AUDIT_CLOSE_MS_MAX = 1_000
"""Time at a stop for the last lines; a disk that hangs must not hold the node."""

AUDIT_SCAN_BYTES = MIB
"""Of the trail's files, what one call reads at most, whatever it looks for: some 5 ms of a thread."""

AUDIT_ROWS_PER_PAGE_MAX = 1_024
"""Lines of one answer; fewer where their bytes fill it."""

AUDIT_PAGE_BYTES_MAX = 512 * KIB
"""Bytes of the lines of one answer: half a frame."""

AUDIT_FOLLOW_MS = 500
"""Time between two looks of `moor audit follow`: as long as lines are gathered."""

RECENT_MS = 3_600_000
"""A span within which what comes by a listener is counted; in milliseconds. As of names of topics."""

QUOTA_LINES_MAX = 1_000
"""Lines of quotas in the settings: those of many are in the catalog."""

ACCOUNTS_LOOKED_AT = 1_024
"""Accounts of quotas that one look for idle ones goes over: below a millisecond."""

ACCOUNTS_LOOK_MS = 1_000
"""Time between two such looks: as long as a rate takes to be whole again."""

TURN_CHARGE_US_MIN = 1_250
"""What a turn costs its principal at least: so that a principal has four of them in a round, and a thousand
connections that say little each do not make a round long."""

CROWDED_POLL_US = 2_000
"""Time for which turns are given before the loop polls, where several principals are connected: what they put
into the next commit is framed in one go, and takes twice as long again. A call passes the loop five times
before it is answered."""

CROWDED_SLICE_MS = 1
"""SLICE_MS where several principals are connected: so that long work keeps its share beside shorter turns."""

TURN_DEBT_ROUNDS_MAX = 4
"""Rounds that a principal sits out at most for a turn that took too long: the length of a turn is the node's
doing as well."""
