"""Queues, and what compares two sets."""

from moorline.limits.units import KIB, MIB
from moorline.limits.wire import SLICE_MS

STATE_LINES_MAX = 16
"""Lines of `queue.log` before it is compacted: under 4 KiB, one block of most file systems."""

STATE_BACKUP_DAYS = 14
"""Days for which state backups are kept: two weekends for whoever looks into an incident."""

STATE_BACKUPS_KEPT = 2
"""State backups that are kept however old they are."""

OPEN_FILES_MAX = 1_024
"""Files of queues that are open at once: far below the open-files limit of common systems."""

OPEN_QUEUES_MAX = 4_096
"""Queues whose files have been read and whose first messages may be cached."""

CACHE_BYTES_PER_QUEUE = 64 * KIB
"""Stored messages of one queue that are read ahead; at most this, or one message."""

LOOK_BYTES_MAX = 4 * MIB
"""Stored messages of one queue that are read to tell how many can be delivered: some milliseconds, and twice
what a full queue of the largest messages holds unless its bounds were raised."""

LOOK_BYTES_PER_TURN = 256 * KIB
"""So many of them before others have their turn."""

LIVE_QUEUES_IDLE_MAX = 65_536
"""Idle queues kept as objects; beyond it they live as rows of the index only."""

CHECKPOINT_SLICE_MS = SLICE_MS
"""Time a checkpoint works before it lets deliveries pass: unnoticed beside an fsync."""

CHECKPOINT_GROUP_QUEUES = 256
"""Queues that a checkpoint copies, to be written in a thread together; it waits for a commit behind each.
A millisecond of the loop, twice; with a thousand messages waiting in each it is 100 ms, in slices."""

CHECKPOINT_SYNC_QUEUES = 1_024
"""Queues that are written between two syncs of a checkpoint: one sync of all would hold up commits."""

THREAD_TURN_S = 0.001
"""Time for which the loop and a thread hold the interpreter while the other wants it: during a checkpoint,
and on a node with several principals."""

QUEUES_FREED_AT_ONCE_MAX = 1_000
"""Queues of a session that ends, or of a service's, that are freed in one turn of the loop: a millisecond. Of
more it is done in slices."""

DISCARDS_PER_TURN = 64
"""Folders of deleted queues that are removed in one turn of the loop: a few milliseconds."""

CHECKPOINT_INTERVAL_MS = 10 * 60 * 1_000
"""Time after which even a small log is checkpointed, so that a restart has little to replay."""

QUEUES_UNINDEXED_MAX = 65_536
"""New queues before a checkpoint makes them rows of the index: some 30 MB as objects."""

QUEUES_DIRTY_MAX = 262_144
"""Queues with changes before a checkpoint: some 100 MB as objects."""

LOG_BEGUN_BYTES_MAX = 64 * KIB
"""A commit of queues up to which the loop itself writes it, and the kernel syncs it: written within the time
that a switch to a thread takes."""

LOG_SEGMENT_BYTES_MIN = MIB
LOG_SEGMENT_BYTES_MAX = 16 * MIB
"""Size of a segment of the log that is prepared before it is begun: a quarter of queues.log_bytes_max within
these bounds. A few seconds of the fastest sending, in which the next one is prepared."""

LOG_SEGMENTS_READY_MAX = 2
"""Segments that are prepared ahead: one, and the one after it should the disk be slow."""

LOG_PREPARE_WRITE_BYTES = MIB
"""Zeros of a segment that are written by one call: so many stay in the caches of a processor."""

LOG_PREPARE_SYNC_BYTES = 16 * MIB
"""Zeros of a segment between two syncs of it: mostly one, since each is a transaction of its own."""

LOG_PREPARE_PAUSE_MS = 10_000
"""Time before the next try where a segment could not be prepared; the log grows meanwhile."""

LOG_PACE_TICK_MS = 5
"""Time between two looks at who of the senders that wait for room in the log goes on."""

LOG_PACE_BYTES_PER_S_MIN = 2 * MIB
"""What senders may always add to the log in a second, however full it is: they are slowed, never stopped."""

LOG_PACE_OWED_MS = 50
"""Time for which what was sent too early may be held against senders: the longest wait for one of them."""

LOG_PACE_AHEAD_MS = 1_000
"""A checkpoint is taken to last at least so much longer: what it does behind the queues is not foreseen."""

STOP_CHECKPOINT_MS_MAX = 4_000
"""Time for the checkpoint at a stop, well within what a stop may take in all."""

COMMIT_BYTES_MAX = 8 * MIB
"""Changes that may wait for one commit; beyond it the node stops reading from its clients."""

DISK_LOOK_MS = 1_000
"""Time between two looks at the disk's room; a second of the fastest writing is below the reserve."""

PARKED_CALLS_MAX = 1_024
"""Calls that wait for the end of a queue's repair, beyond which they are refused; and as many for a look at
the homes. Either takes milliseconds."""

PARKED_BYTES_MAX = 8 * MIB
"""The same in bytes of messages: as much as may wait for a commit."""

QUEUES_GONE_MAX = 16_384
"""Deleted queues whose owner is remembered: its readers, which acknowledge what they got before, hear that
they are gone. The oldest is forgotten first; about 3 MB."""

QUEUE_PROBLEMS_MAX = 100
"""Problems of one queue that an answer tells; more are counted."""

QUEUE_PROBLEM_CHARACTERS_MAX = 500
"""Characters of one of them: names of files and numbers."""

QUEUE_WINDOW_MAX = 1_024
"""Unacknowledged messages of one queue that a subscriber may ask for at once."""

QUEUES_PER_PAGE_MAX = 4_096
"""Rows of one answer to a listing of queues."""

RECONCILE_STARTS_MAX = 16
"""Comparisons from the beginning, because the own set changed under them; one is usual, and each ends the
change that it found."""

WALKED_RANGES_MAX = 262_144
"""Ranges that a walk asks for in one level, about 40 MB; what differs beyond it is listed, not divided. A
million ids of which all differ come to 65,536."""

PURGED_PER_SLICE = 1_024
"""Messages of a queue that are purged in one turn of the loop: about a millisecond."""
