"""A node as a whole: its catalog, its clock, its disk."""

from moorline.limits.units import KIB, MIB

GARBAGE_ROUNDS = 1
"""Collections of new objects behind which the next one walks over all that are not set apart: each leaves
7,000 at most, so that it is some 3 ms with GARBAGE_KEPT_MAX, a slice."""

GARBAGE_KEPT_MAX = 5_000
"""Objects that a collection may leave for the next one; with more all are set apart. Short sessions, which
may be rings, go within it."""

GARBAGE_APART_MAX = 1_000_000
"""Objects set apart before all are looked at: nearly all go by themselves, and of the rest few are rings."""

GARBAGE_LOOK_MS = 5_000
"""Between two looks whether the node is idle."""

IDLE_CPU_SHARE = 0.02
"""Of a core: what a node without clients uses, with its looks at the catalog, is below."""

GARBAGE_WAIT_MS_MAX = 24 * 60 * 60 * 1_000
"""A node that is never idle looks at all its objects so often: it stands still for 0.2 s then, with 10^6."""

STOP_MS_MAX = 10_000
"""A stop takes at most this long: then what is left is cut. Below the 30 s that supervisors grant."""

CATALOG_START_MS_MAX = 60_000
"""Time for the embedded Postgres to answer, recovery after a crash included."""

CATALOG_CONNECT_MS_MAX = 10_000
"""Time for a catalog named by `--catalog` to accept a connection."""

CATALOG_CONNECTIONS_MAX = 8
"""Connections of one node to its catalog; Postgres allows 100, a cluster has several nodes."""

CATALOG_COMMAND_MS_MAX = 30_000
"""One statement on the catalog. Ours take milliseconds; above this a lock or the disk is stuck."""

CATALOG_LOOK_MS = 1_000
"""Pause between two questions whether the catalog is there: one statement of a fraction of a millisecond."""

CATALOG_SILENT_MS = 3_000
"""A question that is open for so long is told in /healthz: a catalog that is only busy answers sooner."""

CATALOG_MIGRATE_MS_MAX = 600_000
"""One migration, the wait for another node that is migrating included: it may rewrite a table."""

CATALOG_POLL_MS = 20
"""Pause between two looks at a starting or ending Postgres; a start takes some 100 ms."""

CATALOG_LEFTOVER_MS_MAX = 5_000
"""Time that the Postgres of a killed node has to end by itself before it is told to."""

CATALOG_STOP_MS_MAX = 5_000
"""Time for a fast shutdown with its checkpoint: half of STOP_MS_MAX, the rest is for the node."""

CATALOG_KILL_MS_MAX = 1_000
"""Time for Postgres to end after each harder signal: neither of them waits for the disk."""

CATALOG_LOG_BYTES_MAX = 8 * MIB
"""The embedded Postgres' log is set aside at a start above this; about 80,000 lines."""

CATALOG_SOCKET_BYTES_MAX = 100
"""Longest path of a unix socket: the kernel takes 107 bytes, other systems 103."""

PROBLEMS_TOLD_MAX = 16
"""Problems that a page about a node's health lists, the worst first."""

PROBLEM_CHARACTERS_MAX = 1_000
"""Of each of them; a text that names a path may be long."""

CLOCK_JUMP_MS_MAX = 300_000
"""Difference of the wall clock and the machine's own from which on it has jumped: above what time servers
correct by themselves, far below what messages live for. Below it the difference is made up slowly."""

CLOCK_CONFIRM_MS = 24 * 3_600_000
"""Time for which a clock that jumped must go evenly before it counts by itself: a night and a morning for
whoever looks after the node. Until then everything is kept as it would have been without the jump."""

CLOCK_STOP_MS_MAX = 366 * 86_400_000
"""Longest stop of a whole machine that is believed: a longer one is more likely a clock that is wrong, and
costs nothing but a confirmation."""

CLOCK_LOOK_MS = 1_000
"""Time between two looks at the clocks."""

CLOCK_NOTE_MS = 30_000
"""Time between two notes of them on disk."""

LOCK_LOOKS = 4
LOCK_LOOK_MS = 25
"""Tries to take the lock of a data folder, and the pause between two: a command that looks whether a node
runs holds it for less than one."""

DISK_FREE_BYTES_MIN = 64 * MIB
"""The reserve of a node: with less room it takes no messages, and a new one does not begin. Acknowledgements,
the catalog and the recovery of the log go on in it."""

CHECKPOINT_QUEUE_BYTES = 12 * KIB
"""What a queue's first flush takes beside its messages: a folder, a file and a state, of a block each."""

CHECKPOINT_SPARE_BYTES = 256 * KIB
"""Room that a checkpoint leaves to others on the disk: the log takes acknowledgements meanwhile."""
