"""Jobs on Spark, and archives."""

from moorline.limits.units import KIB, MIB

JOB_LOOK_MS = 200
"""Time between two looks at what a job does: a person sees no more, and Spark is asked no oftener."""

SPARK_WORDS_MAX = 500
"""Characters of an error of Spark's own that are shown: its first line, without what it carries along."""

ARCHIVE_BATCH_MESSAGES = 5_000_000
"""Messages of a batch of an archive, unless told otherwise: some ten seconds of work, which is what a crash
costs, and a bar that moves."""

ARCHIVE_TASK_MESSAGES = 500_000
"""Messages that one task archives, about a second of work; a file at least."""

ARCHIVE_FILE_BYTES = 256 * MIB
"""Size at which another file of an archive is begun, and up to which small ones are merged."""

ARCHIVE_ROW_GROUP_ROWS = 262_144
"""Rows of a row group: large enough to be read at speed, small enough for a worker's memory."""

ARCHIVE_ROW_GROUP_BYTES = 64 * MIB
"""The same in bytes, for large messages."""

ARCHIVE_PAGE_BYTES = 64 * KIB
"""Bytes of a page of a column: what is read at least of each topic that is asked for, and column."""

ARCHIVE_PAGE_ROWS = 4_096
"""The same in rows, for columns that pack well: a file is a fiftieth larger than with large pages."""

ARCHIVE_READ_ROWS = 65_536
"""Rows of a file that a task reads at once."""

ARCHIVE_MERGES_MAX = 512
"""Streams that are merged by one entry: what is done by then is kept if a later one is cut short."""

ARCHIVE_UPKEEP_MS = 60_000
"""Time between two looks of a continuous archive at what was sealed and can be merged."""

ARCHIVE_ORPHAN_S = 86_400
"""Age at which a file that no entry names is taken for the leftover of a crash: no task runs that long."""

MATERIALIZED_BUCKETS = 16
"""Files of a materialized table, unless told otherwise: of a million rows, some 60,000 in each."""

MATERIALIZED_BUCKETS_MAX = 4_096
"""A task, and a line in each state, for each of them."""

MATERIALIZED_ROW_GROUP_ROWS = 65_536
"""Rows of a row group of a materialized table: a reader that looks for a key passes over whole groups."""

MATERIALIZED_KEPT_MS = 3_600_000
"""How long the files of a state stay when there is a newer one: a query that reads them is over by then."""

MATERIALIZED_STATES_MAX = 1_000
"""States that are kept at once, however soon they follow each other; with one every ten seconds the time is
over sooner."""

MATERIALIZE_STAGED_BYTES = 64 * MIB
"""What a task gathers of a topic before it writes it: its memory, about three times."""

MATERIALIZE_PROOF_MS = 30_000
"""Time for which what is kept may differ from the table before a run says so: a publisher is some ten
milliseconds behind, a busy table meets one of the moments that were seen sooner or later."""

MATERIALIZE_LOOK_MS = 100
"""Between two looks of a run that waits for its proof, or for its next round."""

MATERIALIZE_NOTE_MS = 60_000
"""A run without an end writes down this often how far it has read, though nothing was said of its table."""

VERIFY_TASK_BYTES = 64 * MIB
"""Bytes of files that one task of a proof reads: some tenths of a second of work."""

VERIFY_STREAMS_MAX = 512
"""Streams whose 256 digests the driver holds at once: some 50 MB as objects; of those that are equal it
keeps the sum alone."""

VERIFY_LOOKS_MAX = 3
"""Times that a stream is looked at again because a compaction moved its files meanwhile."""

VERIFY_RANGES_MAX = 1_000
"""Ranges of one kind that a proof names for one stream; more are counted."""

REPLAY_PIECE_ROWS = 100_000
"""Messages of one stream in a step of a replay: what a task holds and sorts at once."""

REPLAY_PIECE_BYTES = 64 * MIB
"""The same in bytes of files, which are packed."""

REPLAY_STEP_PIECES = 8
"""Pieces of a step of a replay without a rate: as many tasks."""

REPLAY_STEP_S = 2
"""Seconds of a bounded rate that one step brings, at most: what comes in one moment."""

REPLAY_AHEAD_S = 20
"""Seconds of a bounded rate that one job of Spark's stages ahead: longer than such a job takes on a busy
machine, so that the next steps are there when those before them are published."""

REPLAY_AHEAD_STEPS_MAX = 64
"""Steps of such a job, each a task or a few. A filter may leave so little of each
that the rate is not reached."""

REPLAY_ARREARS_S = 10
"""Seconds of a bounded rate that are caught up on when steps were late. Behind a longer pause the rest is
not: a node that was away does not get all of it at once."""

REPLAY_TOKEN_LENGTH_MAX = 100
"""Characters of the name of a replay: it is part of the names of files."""

REPLAY_STAGE_ROWS = 10_000
"""Rows that a task of a replay hands to its stage at once."""

AUDIT_PREFIXES_PER_TASK = 8
"""First bytes of the hash that one task of an audit reads: 32 tasks, each a range of the index."""

AUDIT_PIECE_ROWS = 65_536
"""Associations that such a task holds at once."""

FLOW_PARTITIONS_MAX = 4_096
"""Partitions of a flow's write whose producers are looked for: more than a query has tasks."""

FLOW_CLOCKS_MS_MAX = 600_000
"""How far the clocks of a driver and a node may be apart where a flow is proven."""

PIPELINE_PATIENCE_MS = 600_000
"""Time for which a job without an end waits for a node that is away: a restart takes seconds, the repair of a
machine some minutes; later somebody should hear of it by the end of the job."""

PIPELINE_STEADY_MS = 120_000
"""A query that ran for so long has found its node again, and the next loss is another one: a query without a
node ends within half a minute."""

PIPELINE_TASKS_MIN = 8
"""Tasks of a comparison at least: where nobody says how many run at once, a small cluster is kept busy."""

PIPELINE_ROWS_SHOWN = 20
"""Ranges that a table of a proof shows; --json has them all."""

PIPELINE_IDS_SHOWN = 100
"""Ids that differ and that are printed unless told otherwise; --out stores them all."""
