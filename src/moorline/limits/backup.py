"""Backup and restore."""

HELD_LINKS_PER_FOLDER = 10_000
"""Links in one folder of what a backup holds: file systems are slow with millions in one."""

BACKUP_PART_BYTES = 1_048_576
"""What a copy has in memory of a file."""

BACKUP_LIST_BYTES_MAX = 1_048_576
"""The small texts of a backup: more is none of ours."""

BACKUP_LOOK_MS = 200
"""Time between two looks of `moor backup` at how far the node is."""

BACKUP_REACH_MS_MAX = 3_000
"""So long a restore waits at each address whether the node that it would be a double of listens there."""

BACKUP_ANSWER_MS_MAX = 15_000
"""And so long for what it says: who says nothing may be that node."""

CATALOG_CUT_MS_MAX = 5_000
"""Senders and publishers wait while the catalog says that it sees the moment of a backup: a millisecond."""

NUMBERS_PER_S_MAX = 2_000_000
"""Messages a second that one shard, or the queues of a node, cannot reach: what was given since a backup is
below that, and is not given again."""

EPOCHS_PER_S_MAX = 1_000_000
"""As many epochs and tickets."""
