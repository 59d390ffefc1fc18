"""Topics and their streams."""

from moorline.limits.units import KIB, MIB

TOPIC_BYTES_MAX = 1_024
"""Longest topic or filter: MQTT allows 65,535, nobody writes a name that long, and frames carry it."""

FILTER_LENGTH_MAX = TOPIC_BYTES_MAX + 256
"""Characters of a filter with a group before it."""

START_LENGTH_MAX = 64
"""Characters of the place at which a subscription or group is to begin."""

TTL_S_MAX = 0xFFFF_FFFF
"""Longest time to live of a message: what a frame has room for, more than a century."""

SEQUENCE_FIRST_MAX = (1 << 62) - 1
"""Highest number at which a command begins to count its messages: it has room to count on."""

TOPIC_LEVELS_MAX = 32
"""Most levels of a topic: matching is a walk over them."""

GROUP_NAME_BYTES_MAX = 128
"""Longest name of a group."""

TOPIC_KEY_BYTES_MAX = 1_024
"""Longest key of a message."""

TOPIC_HEADERS_BYTES_MAX = 16 * KIB
"""All headers of a message, encoded."""

PRODUCERS_MAX = 10_000
"""Producers whose last sequence a shard remembers: some 1 MB, and every publisher of a large node."""

STREAM_INDEX_EVERY = 128
"""Frames between two entries of the sparse index: a seek reads some 15 KB too much."""

BROWSED_MAX = 200
"""Messages that one look into a stream gives: a page for people."""

BROWSED_BODY_BYTES_MAX = 64 * KIB
"""Of one of them: more is not read by people. The whole of one is asked for by itself."""

BROWSED_ANSWER_BYTES_MAX = 512 * KIB
"""Of all of them together; as JSON they are a third larger."""

BROWSED_CONTAINS_BYTES_MAX = 256
"""Of what is looked for within bodies."""

STREAM_READ_BYTES_MAX = 512 * KIB
"""Frames that one read of a stream gives at most: half of a frame of the wire, so that it always fits."""

STREAM_FILE_BYTES_MAX = 1 << 41
"""No file of a stream is longer: twice the largest `streams.generation_bytes_max`. A system refuses to read
at places that are far beyond."""

STREAM_WALK_BYTES = 4 * MIB
"""Frames that a walk through a whole segment reads at once: tens of thousands are checked together."""

STREAM_SHARDS_MAX = 1_024
"""Shards of a node: each has files that are open, and a part in every commit that touches it."""

STREAM_DENSE_READ = 4_096
"""Frames that one read finds by the dense index: those of 512 KiB, if they have 100 bytes and some."""

STREAM_SEARCH_BYTES = 256 * KIB
"""Bytes that are searched at once for the next whole frame behind damage; it is often near."""

STREAM_SCAN_BYTES_MAX = 16 * MIB
"""Frames between two entries of the index that are read at once; larger ones are few, and walked."""

STREAM_SEEK_BYTES = 32 * KIB
"""Frames that are read to find a time: those between two entries of the sparse index, and some more."""

STREAM_TAIL_BYTES_MAX = 8 * MIB
"""Newest frames of a shard that stay in memory for readers that keep up."""

PRODUCER_LENGTH_MAX = 256
"""Characters of a producer's name."""

TOPICS_LISTED_MAX = 65_536
"""Topics that one walk of a listing keeps for its next pages, and at least a half of these: some 10 MB."""

TOPICS_LISTED_LENGTH_MAX = 8 * MIB
"""The same in characters of their names: 128 for each."""

TRACE_SPANS_MAX = 8_192
"""Spans that wait for the collector: some 8 MB. One that does not fit is counted and gone."""

TRACE_BATCH_SPANS_MAX = 512
"""Spans of one post: some 300 KB of JSON."""

TRACE_BATCH_MS = 1_000
"""Spans are collected for so long before they are sent."""

TRACE_POST_MS = 3_000
"""A collector that does not take a batch within that time has not taken it."""

TRACED_MESSAGES_PER_S_MAX = 1_000
"""Messages, and deliveries, that a node traces in a second. Publishers say by a header that a message is to
be traced, and a crowd of them must not slow the node down by it."""

TRACED_PULL_BYTES_MAX = 4 * MIB
"""Of what a member of a group takes by itself at once so much is read again to look for what is traced: it
went to the member from wherever it is stored."""

TRACED_IN_FLIGHT_MAX = 10_000
"""Traced deliveries of a node that are not acknowledged: of those beyond it the span of the ack is
missing."""

DELETED_TOPICS_MAX = 4_096
"""Deleted topics of a node whose messages retention has not taken yet: their list is written whole with each
deletion, some 200 bytes a topic."""

TOPIC_DELETION_MS = 30_000
"""A node that does not answer within that time is told as one where a topic may not be deleted: before it
answers it looks through the topics of all its streams."""

LISTINGS_KEPT_MAX = 4
"""Sessions whose next pages of a listing are kept; another one has its topics walked over at each page."""

TOPICS_PER_PAGE_MAX = 1_000
"""Rows of one answer to a listing of topics: at most a frame of long names."""

STREAMS_PER_PAGE_MAX = 4_096
"""Rows of one answer to a listing of streams: half a frame, with the longest names of nodes."""

STREAMS_AT_ONCE_MAX = 16_384
"""Streams that are told without pages: with short names so many fit a frame."""

GROUPS_PER_PAGE_MAX = 500
"""Rows of one answer to a listing of groups: at most three quarters of a frame of long names."""

GROUPS_AT_ONCE_MAX = 8_192
"""Groups that are told without pages: with short names so many fit a frame."""

GROUP_ROWS_PER_PAGE_MAX = 4_096
"""Members, and as many places, of one answer about a group; fewer, where their names are long."""

GROUP_PAGE_BYTES_MAX = 384 * KIB
"""Members of one answer about a group, and as much again for its places: together three quarters of a frame,
and a row that goes beyond has 1.2 KB at most (a member's name is up to 256 characters of four bytes)."""

TOPIC_WINDOW_MAX = 65_536
"""Unacknowledged messages of one subscription."""

TOPIC_WINDOW = 1_024
"""The same, unless the reader says otherwise: a few milliseconds of a fast stream."""

STREAM_WAIT_MS_MAX = 30_000
"""How long a read of another node's stream waits for news."""

STREAM_PASS_MS = 1_000
"""So long a reader of another node's stream passes over what is not for it before its place is noted, or
until one read has waited in vain. One whose session ends meanwhile reads that much again, and nothing of it
is for it."""

RETAINED_BYTES_MAX = 512 * KIB
"""Retained messages that another node gives at once; those of a wider filter come page by page."""

RETAINED_WALKS_MAX = 16
"""Places among retained messages that are kept for the next page of another node: each may hold a list of
all topics of a level. Behind that the next page is found by going there again."""

STREAM_BUSY_MESSAGES = 2_000
"""Messages of a commit from which on publishers are a crowd."""

STREAM_BUSY_MS = 4
"""Time between the beginnings of two commits of a crowd: a few syncs of a good disk."""

STREAM_SKIP_MARGIN = 65_536
"""Offsets left out behind a shard's readers if it lost its end: more than they can have acknowledged since
they last stored their places. Also where nobody knows how far it came: the newest segment is gone, or the
folder is an older copy."""

STREAM_SYNCS_MAX = 8
"""Files that a commit syncs side by side: as many as a node has shards by default."""

STREAM_LOGGED_BYTES_MAX = 128 * KIB
"""Frames of a commit up to which it is synced in the log, and not in the segments: one sync for all shards.
Above it the bytes that are written twice cost more than the syncs."""

STREAM_LOG_BYTES = 16 * MIB
"""One file of the log of small commits; a start reads two of them at most, and who reads a folder too."""

STREAM_LOG_PAUSE_MS = 10_000
"""Time before the next try where a file of the log could not be made; commits go to segments until then."""

STREAM_SMALL_BYTES_MAX = 64 * KIB
"""A shard's part of a commit that is written on the loop, where nothing is synced: written within the time
that a switch to a thread takes."""

COLUMN_ONE_BY_ONE_MAX = 1_000
"""Parts of a buffer up to which hashing them one by one costs less than the detour through Arrow."""

FRAMES_ONE_BY_ONE_MAX = 16
"""Frames of a block up to which a look at each of them costs less than a column of all."""

STREAM_FRAMED_ONE_BY_ONE_MAX = 64
"""Messages of a shard's part of a commit up to which numpy costs more than it saves."""

STREAM_UPKEEP_MS = 1_000
"""Time between two looks at what is to be rolled, sealed and dropped."""

STREAM_SEALS_PER_LOOK = 64
"""Generations that are sealed at one of these looks: about a second of an ordinary disk."""

STREAM_NEWS_MS = 20
"""Time for which news of a node's streams are gathered before other nodes hear them."""

PROGRESS_MS = 10
"""Time for which acknowledgements are gathered before a Leader hears them."""

READS_PER_TURN_MAX = 32
"""Blocks that one session reads before others get a turn: at most some milliseconds."""

LOSSES_LOOK_MS = 200
"""Time between two looks of `moor topic tail` for lost messages: perhaps nothing follows to show them."""

STREAM_TAIL_BLOCKS_MAX = 4_096
"""The same, counted in commits: tiny ones would cost more as objects than as frames."""

STREAM_SNAPSHOT_BYTES = 16 * MIB
"""Growth of a shard between two snapshots of what it remembers; a start reads at most this and a commit
of each shard again: half a second for all shards."""

TOPICS_COUNTED_MAX = 65_536
"""Topics that are counted by name in one generation: some 8 MB; what goes beyond is counted together."""

PUBLISHERS_COUNTED_MAX = 4_096
"""Publishers whose bytes are counted in one generation: at most 1 MB of names, which every start reads."""

TOPIC_COUNTED_LENGTH = 128
"""Characters of a topic's name up to which so many are counted; of longer ones fewer, in the same memory."""

TOPICS_CACHED_MAX = 65_536
"""Topics whose bytes and shard a node remembers; a publisher that invents more pays for looking again."""

TOPICS_CACHED_BYTES_MAX = 8 * MIB
"""The same in bytes of their names, of which each is held three times: 128 bytes for each topic."""

TOPICS_WITH_LIST_MAX = 16_384
"""Topics of a sealed stream that have a list of their own; all others share one."""

TOPICS_LISTED_BYTES_MAX = MIB
"""The same in bytes of their names: a reader of one topic reads all of them."""

PICK_SHARE_MAX = 1 / 8
"""Of the messages of a stream. To pick one of a hundred costs as much as to read fifteen that follow each
other, and one of five as much as five: above it, everything is read."""

COUNTED_STREAMS_MAX = 64
"""Streams whose lists one call looks at for how many messages may match: each is up to a MiB of names, and
where nothing matches there is no other end."""

COUNTED_BYTES_MAX = 64 * MIB
"""The same of streams without lists, whose messages are read for it: some tenths of a second of a thread."""

PICK_NEAR_BYTES = 8 * KIB
"""Picked frames that are nearer to each other are read together, with what is between them."""

PICK_MESSAGES_MAX = 4_096
"""That a reader picks at once, and so looks up in the dense index."""

PICK_ELSEWHERE_MESSAGES_MIN = 4_096
"""Messages that a stream of another node has yet, from where that node is asked for what matches; of fewer
the blocks are read, a few that all readers of a node share."""

PICK_TABLES_BYTES_MAX = 32 * MIB
"""Of offsets that may match, which a node remembers for readers that go on in a sealed stream."""

STREAM_DENSE_CACHED_MAX = 1_024
"""Places in one segment that reads have ended at: as many readers go on without a seek."""

RETAINED_LOG_BYTES_MIN = 8 * MIB
"""The log of retained messages is not compacted below this, and above it when half of it is outdated."""

RETAINED_SLICE_BYTES = MIB
"""Of a compaction of that log, what one commit writes at least: publishers wait for a commit."""

RETAINED_TOMBSTONE_S = 30 * 86_400
"""Time for which a node remembers that a retained message was removed, for nodes that still have one."""

STREAM_MANIFEST_BYTES_MAX = 64 * KIB
"""Size of a shard's manifest above which a start writes it anew: some 300 generations."""

FILES_LOOK_MS = 5_000
"""Time between two looks whether the files of streams, and the log of the queues, are where they were."""

DROPPED_LOG_READ_BYTES_MAX = 64 * KIB
"""End of `dropped.log` that a start reads: some 500 generations, the last ones are what matters."""

TOPIC_NAMES_MS = 3_600_000
"""Time for which a topic counts that a principal has published to, and at most once more: an hour is longer
than a program that makes names by mistake goes unnoticed."""
