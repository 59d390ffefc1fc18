"""Staged writes."""

from moorline.limits.units import KIB, MIB

STAGED_NOTE_BYTES = 8 * MIB
"""Rows that are published between two notes of how far a commit came: a start looks at so many again."""

STAGED_NOTE_STAGES_MAX = 1_024
"""Stages between two notes: each is a producer, and a shard must not forget one before it is noted."""

STAGED_QUEUE_ROWS_PER_TURN = 1_000
"""Rows that go to queues in one turn of the loop, with their note: about 3 ms."""

STAGED_LEFTOVERS_MS = 3_600_000
"""Time between two looks for stages that nobody wants any more."""

PACKED_SHARDS_MAX = 1 << 16
"""Shards that packed rows may be sorted by: more than any node has, so a chunk that says more is none."""

STAGES_MAX = 65_536
"""Stages of a node: a day of leftovers of a busy cluster; a file and some 1 KB each."""

STAGES_OPEN_PER_CONNECTION_MAX = 256
"""Stages that one connection writes at once: a task of Spark writes one, and has a connection of its own."""

STAGE_FILES_OPEN_MAX = 64
"""Files of stages that are open at once, as many as there are tasks at work; others are opened for each
chunk."""

STAGE_KEPT_S = 86_400
"""A stage that nobody has committed by then is a leftover: its driver is gone for good."""

STAGE_FACTS_BYTES_MAX = 4 * KIB
"""The head of a stage: its query and some numbers."""

STAGED_QUERY_KEPT_S = 30 * 86_400
"""A query that has committed nothing for so long is forgotten, and with it what fences its batches."""

STAGED_QUERIES_MAX = 65_536
"""Queries whose last batch is remembered: some 10 MB; every batch write is one."""

COMMIT_LOG_BYTES_MAX = 16 * MIB
"""The commit log is not compacted below this: some 100,000 commits."""

STAGED_QUEUES_NAMED_MAX = 5
"""Queues that the refusal of a commit names."""

DAMAGE_LINES_MAX = 20
"""Damaged places, or files, that one look names in the log; of the others it says how many."""

STAGED_ROOM_MS_MAX = 30_000
"""Time that a decided commit waits for room on a full disk, before whoever asked for it is told so."""

STAGED_REFUSED_NAMED_MAX = 100
"""Queues that the answer to a commit names, those with the most refused rows first; all rows are counted."""

STAGED_MENDING_MS_MAX = 60_000
"""Time that a decided commit waits for queues that are checked or repaired: each takes seconds at most."""
