"""Sources and sinks of Spark."""

from moorline.limits.units import KIB, MIB

ID_SET_BUCKET_BITS = 16
"""Bits of the hash that name a bucket: 65,536 buckets far outnumber the differences of sane sets."""

ID_SET_PIECE_ROWS = 65_536
"""Ids that a task hashes at once: enough that the call costs nothing, few enough for the cache."""

SPARK_BLOCK_BYTES = 4 * MIB
"""Frames that a task decodes together: enough that the calls of numpy and Arrow do not count, little
enough that a batch of rows is small."""

SPARK_SLICE_MESSAGES = 65_536
"""Entries of a dense index that a task reads at once: 512 KiB."""

SPARK_READS_IN_FLIGHT = 8
"""Reads of a node that one task has under way: one block of frames."""

SPARK_LINK_TRIES = 4
"""Times that a task tries to reach a node that went away, before Spark tries the task itself again."""

SPARK_LINK_PAUSE_MS = 1_000
"""Pause before each of them: a restart of a node takes a few seconds."""

SPARK_QUEUES_PER_PAGE = 4_096
"""Queues whose contents a task reads from a folder before it yields: some megabytes."""

SPARK_PEEKS_IN_FLIGHT = 64
"""Queues that a task asks a node for at once: their answers may be a frame each."""

SPARK_VIEW_TRIES = 5
"""Times that a folder of queues is read again because its node moved files meanwhile."""

SPARK_ASSOCIATIONS_PER_TASK = 1_000_000
"""Associations that one task copies out of the catalog: about a second."""

PEEK_BYTES = 256 * KIB
"""Messages of a queue that one look gives; the largest message and this fit a frame of the wire."""

PEEK_ROW_BYTES = 32
"""What a message of such a look takes beside its body."""

SERVICE_AGREEMENT_MS_MAX = 60_000
"""What an operator waits for a service to agree with all of its homes: that of a million queues takes some
seconds."""

QUEUES_LOOKED_AT_MAX = 200_000
"""What one call for a page of queues passes to find those that are as they are wanted: half a second, in
slices. Where there are more, the answer says how far it came."""

PEEK_SEEN_BYTES_MAX = 4 * MIB
"""What one look for messages with something in them passes: whoever asks sees how far it is, and may stop."""

PEEK_BYTES_PER_STEP = 16 * KIB
"""What a look passes before others may have the loop: a hundred small messages, a fifth of a millisecond."""

PEEK_TRIES = 5
"""Times that a look begins anew because the queue's messages went into files meanwhile."""

PIPELINE_RUNS_KEPT = 500
"""Runs of the pipeline that the catalog remembers, the newest: some weeks of a busy cluster, 200 KB."""

PIPELINE_RUNS_PER_PAGE = 100
"""Runs that one answer shows to people."""

PIPELINE_RUN_TELLS_MS = 1_000
"""Between two words of a run about itself: people see no more, and each is a row that is written."""

PIPELINE_RUN_SILENT_MS = 15_000
"""A run that has said nothing for that long is shown as silent: its process is gone, or hangs."""

PIPELINE_RUN_NAME_CHARACTERS_MAX = 64
"""Of the name that a run draws for itself."""

PIPELINE_RUN_ENDS_MS_MAX = 3_000
"""What the end of a run waits for a node to hear of it: the job is done either way."""

SPARK_BUNDLE_MESSAGES = 1_000_000
"""Small streams of one shard are read by one task up to this many messages: a task costs some 30 ms, and
below this Python would spend a tenth of its time on beginning."""

SPARK_PARTITIONS_MAX = 65_536
"""Tasks that `minPartitions` asks for: each costs some 30 ms before it reads anything, so that these are half
an hour of a core, and the driver plans and pickles them one by one (some 20 µs and 0.2 KB each). More are a
slip of the pen, not more work side by side."""

SPARK_TASK_TRIES = 4
"""Attempts of a task on this machine, as many as Spark makes on a cluster: together they outlast the restart
of a node."""

SPARK_CONNECT_MS_MAX = 10_000
"""Time in which a Spark Connect server must answer for the first time; one that starts takes as long."""

SPARK_CHANNEL_CLOSE_MS_MAX = 2_000
"""Time for gRPC's threads to leave a channel before it is closed; they look every 200 ms."""

SPARK_CONNECT_TRIES = 20
"""Times that a call to such a server is said again. One that restarts has lost the session anyway: this is
for a network that stumbles."""

SPARK_CONNECT_PAUSE_MS = 1_000
"""Pause between two of them."""

SPARK_CONNECT_END_MS = 5_000
"""Time that a job has for its end at such a server, once it is told to end: one that hangs is left alone."""

SPARK_QUERIES_WATCHED_MAX = 1_024
"""Queries whose lag a listener remembers: those that said something last."""

SPARK_GAPS_TOLD_MAX = 100
"""Ranges of lost messages that a query names in its progress; it counts them all."""

SPARK_NAMES_TOLD_MAX = 3
"""Names that an error lists: streams of a task or a proof, or topics that look like one that is not there."""

SPARK_CHUNK_BYTES = 896 * KIB
"""Rows that a task sends to a stage at once: they fit a frame of the wire, and are many for one call."""

SPARK_CHUNKS_IN_FLIGHT = 8
"""Chunks that a task has sent and that are not answered: the node works while the next are made."""

SPARK_COMMIT_MS_MAX = 120_000
"""Time for which the driver tries to commit at a node that is away; a restart takes a few seconds."""

SPARK_COMMIT_PAUSE_MS = 500
"""Pause between two of these tries."""

SPARK_PACE_MS_MAX = 600_000
"""Time for which a task waits until the rates of its principal take one chunk: with many tasks beside it that
is long, and a rate that nobody raises is not waited for to no end."""

SPARK_VALUE_BYTES_MAX = 512 * KIB
"""A larger value is refused before it is sent: the largest that streams.message_bytes_max can be."""

SPARK_ROW_EXTRA_BYTES = 32
"""A row's share of a chunk beside its texts: lengths and numbers."""

SPARK_COMPLETE_KEPT_MS = 10_000
"""Time for which a member of a group remembers what it acknowledged: many times what a group needs to store
it. Later, a range that is granted again was sought by an operator, and is read again."""

SPARK_FIRST_MOMENT_MS_MAX = 2_000
"""Wait of any query in a group for its first stream: many times what a Leader takes to plan and grant."""

SPARK_FIRST_STREAM_MS_MAX = 15_000
"""Wait of a query in a group, with an end, for its first stream: there may be more members than streams."""

SPARK_SETTLE_MS_MAX = 60_000
"""Wait of such a query for streams that come to nobody; more than a revocation takes by default."""

SPARK_SETTLE_PAUSE_MS = 50
"""Pause between two looks at a group that still moves streams about."""

SPARK_VALUES_PER_TASK = 100_000
"""Paths of live values that one task of a snapshot reads: some seconds of work."""

SPARK_RECORDS_PER_BATCH = 10_000
"""Rows of a table that go to Java at once, as Spark's own batches do."""

SPARK_VALUES_PER_ASK = 10_000
"""Of these, subscribed to at once and given to Spark as one batch of rows."""

SPARK_UPDATES_KEPT = 100_000
"""Updates that wait for the next batch of a query; beyond it the latest of each path is kept, and the others
are counted."""

SPARK_UPDATES_PER_BATCH = 100_000
"""Rows of one batch of such a query, at most: they pass through the driver."""

SPARK_UPDATES_PER_TASK = 10_000
"""Of these, how many a task gets."""

SPARK_FIRST_VALUES_MS_MAX = 15_000
"""Wait of a query for the first value of each path, when it begins: a publisher that does not answer must not
keep the others' values."""

SPARK_PATHS_LOOK_MS = 30_000
"""Time between two looks at which paths there are, beside what resolvers push: a cluster that was delegated
to pushes nothing, and a push may be lost with its resolver."""

SPARK_VALUES_TOLD_MS_MAX = 10_000
"""Wait of a publisher in the driver for subscribers that are slow, and for resolvers to hear of new paths."""
