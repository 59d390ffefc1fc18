"""Room: limits. Every bound of the system, with its unit last in its name, and its reason."""

KIB = 1024
MIB = 1024 * KIB

# --- wire -----------------------------------------------------------------------------------------

FRAME_BYTES_MAX = 1 * MIB
"""Largest payload of a frame. A batch of 60 messages of 16 KiB fits; one peer can hold at most this
much of our memory before it has said anything whole."""

HELLO_FRAME_BYTES_MAX = 4 * KIB
"""Largest frame before the hello is done: a stranger gets very little memory."""

MESSAGES_PER_FRAME_MAX = 8_192
"""Bounds the objects one frame can make: 8,192 small messages are about a millisecond of decoding."""

HELLO_TIMEOUT_MS = 5_000
"""A peer that has not said a whole hello by then is closed: time for a slow link, not for an idler."""

KEEPALIVE_MS = 15_000
"""Silence after which a peer is asked whether it is there; below the 30 s of common NAT boxes."""

WRITE_BUFFER_BYTES_MAX = 4 * MIB
"""Bytes waiting for one slow reader. Above it we stop reading from that peer and stop pushing to it."""

CALLS_IN_FLIGHT_MAX = 16_384
"""Unanswered calls of one connection; beyond it the server stops reading: two full frames of work."""

CONNECTIONS_MAX = 15_000
"""Sockets one node accepts at once, lowered to what the open-files limit leaves (with a warning)."""

GOODBYE_MS_MAX = 1_000
"""Time a closed peer has to read what is left for it; then its socket is cut."""

LISTEN_BACKLOG = 4_096
"""Connections the kernel holds while the loop is busy; a burst of reconnects after a restart."""

NAME_CHARACTERS_MAX = 128
"""Longest name of a piece of software in a hello."""

PEM_BYTES_MAX = MIB
"""What is looked at of a certificate or key that cannot be used: bundles of authorities are smaller."""

# --- machines -------------------------------------------------------------------------------------

STORY_EVENTS_MAX = 32
"""Last events that a machine keeps for the story in its error: enough to see how it came there."""

INBOX_EVENTS_MAX = 1_024
"""Events waiting for one machine: about one second of a busy session."""

# --- node -----------------------------------------------------------------------------------------

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

HTTP_REQUEST_BYTES_MAX = 8 * KIB
"""Largest head of a request to /healthz and /metrics."""

HTTP_TIMEOUT_MS = 5_000
"""Time a client has for its request head."""

DISK_FREE_BYTES_MIN = 64 * MIB
"""A node does not start with less room than this: it could not even recover its write-ahead log."""

# --- queues ---------------------------------------------------------------------------------------

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

LIVE_QUEUES_IDLE_MAX = 65_536
"""Idle queues kept as objects; beyond it they live as rows of the index only."""

CHECKPOINT_SLICE_MS = 3
"""Time a checkpoint works before it lets deliveries pass: unnoticed beside an fsync."""

CHECKPOINT_SLICE_MS_MAX = 60
"""The same when the log is nearly full: deliveries wait, but senders are not stopped for long."""

CHECKPOINT_INTERVAL_MS = 10 * 60 * 1_000
"""Time after which even a small log is checkpointed, so that a restart has little to replay."""

QUEUES_UNINDEXED_MAX = 65_536
"""New queues before a checkpoint makes them rows of the index: some 30 MB as objects."""

QUEUES_DIRTY_MAX = 262_144
"""Queues with changes before a checkpoint: some 100 MB as objects."""

STOP_CHECKPOINT_MS_MAX = 4_000
"""Time for the checkpoint at a stop, well within what a stop may take in all."""

COMMIT_BYTES_MAX = 8 * MIB
"""Changes that may wait for one commit; beyond it the node stops reading from its clients."""

DISK_LOOK_MS = 1_000
"""Time between two looks at the disk's room; a second of the fastest writing is below the reserve."""

QUEUE_WINDOW_MAX = 1_024
"""Unacknowledged messages of one queue that a subscriber may ask for at once."""

QUEUES_PER_PAGE_MAX = 4_096
"""Rows of one answer to a listing of queues."""

# --- services -------------------------------------------------------------------------------------

BLOCK_BYTES_MAX = 16_384
"""Largest message of a reconciliation: a block of the specification."""

SERVICE_PAYLOAD_BYTES_MAX = 1 << 30
"""Largest sketch or list that a client takes: the list of a hundred million queues."""

SERVICE_WINDOW_MAX = 64
"""Unacknowledged messages of one queue on their way to a service."""

SERVICE_IN_FLIGHT_MAX = 16_384
"""Unacknowledged messages of all queues on their way to one service: two full frames of work."""

SERVICE_PAGE_QUEUES = 10_000
"""Queues of a service that are looked at together for waiting messages: 240 KB."""

SERVICE_SKETCHES_MAX = 64
"""Services whose sketch (121 KB) a node keeps in memory."""

ROUTE_MS_MAX = 5_000
"""Time for which a node remembers whose a queue is; a change elsewhere is noticed after this."""

ROUTE_RETRY_MS = 500
"""Pause before a catalog that did not answer is asked again."""

ROUTES_MAX = 65_536
"""Queues whose service a node remembers."""

# --- topics and streams ---------------------------------------------------------------------------

TOPIC_BYTES_MAX = 1_024
"""Longest topic or filter: MQTT allows 65,535, nobody writes a name that long, and frames carry it."""

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

STREAM_READ_BYTES_MAX = 512 * KIB
"""Frames that one read of a stream gives at most: half of a frame of the wire, so that it always fits."""

STREAM_TAIL_BYTES_MAX = 8 * MIB
"""Newest frames of a shard that stay in memory for readers that keep up."""

PRODUCER_LENGTH_MAX = 256
"""Characters of a producer's name."""

TOPICS_PER_PAGE_MAX = 1_000
"""Rows of one answer to a listing of topics: at most a frame of long names."""

TOPIC_WINDOW_MAX = 65_536
"""Unacknowledged messages of one subscription."""

TOPIC_WINDOW = 1_024
"""The same, unless the reader says otherwise: a few milliseconds of a fast stream."""

STREAM_WAIT_MS_MAX = 30_000
"""How long a read of another node's stream waits for news."""

SESSION_NAME_BYTES_MAX = 256
"""Longest name of a session."""

SESSION_EXPIRY_S_MAX = 10**8
"""Longest time that a durable session is kept without its client: three years."""

RETAINED_BYTES_MAX = 512 * KIB
"""Retained messages that another node gives at once; a wider filter than that gets the first of them."""

# --- groups ---------------------------------------------------------------------------------------

LEASES_REMEMBERED_MAX = 4_096
"""Leases that are over and that a Borrower remembers, to know a late grant: minutes of a busy queue."""

DELIVERIES_MAX = 1_000_000
"""Failed deliveries that a group may allow a message."""

MEMBER_LENGTH_MAX = 512
"""Characters of a member's name: a session's, with its node's before it."""

BORROWERS_MAX = 1_024
"""Members of one group: five times what other systems take."""

BORROWERS_DEPARTED_MAX = 4_096
"""Borrowers that went and that a Leader remembers, so that a late word of theirs does not bring them back."""

QUEUE_SLICE_MAX = 256
"""Messages of one lock of a `$queue` group: a frame of the wire of usual ones."""

NODE_SEEN_MS = 1_000
"""Time between two signs of life of a node in the catalog, and two looks for other nodes."""

NODE_GONE_MS = 5_000
"""Silence in the catalog after which other nodes do not try to reach a node any more."""

PEER_RETRY_MS = 200
"""Pause before a link to another node is tried again."""

STREAM_BUSY_MESSAGES = 2_000
"""Messages of a commit from which on publishers are a crowd."""

STREAM_BUSY_MS = 4
"""Time between the beginnings of two commits of a crowd: a few syncs of a good disk."""

STREAM_SKIP_MARGIN = 65_536
"""Offsets left out behind a shard's readers if it lost its end: more than they can have acknowledged since
they last stored their places."""

STREAM_SYNCS_MAX = 8
"""Files that a commit syncs side by side: as many as a node has shards by default."""

STREAM_SMALL_BYTES_MAX = 64 * KIB
"""A shard's part of a commit that is written on the loop, where nothing is synced: written within the time
that a switch to a thread takes."""

STREAM_UPKEEP_MS = 1_000
"""Time between two looks at what is to be rolled, sealed and dropped."""

STREAM_NEWS_MS = 20
"""Time for which news of a node's streams are gathered before other nodes hear them."""

PROGRESS_MS = 10
"""Time for which acknowledgements are gathered before a Leader hears them."""

READS_PER_TURN_MAX = 32
"""Blocks that one session reads before others get a turn: at most some milliseconds."""

PRIVATE_COMMIT_MS = 100
"""Pause between two commits of the places of a durable session."""

SUBSCRIPTIONS_MAX = 1_024
"""Subscriptions of one session."""

FAR_FUTURE_US = (1 << 62) - 1
"""A time after all messages: the offset at it is the end."""

SESSIONS_KEPT_MS = 5_000
"""Time between two signs of life of the durable sessions of a node."""

SESSION_EXPIRY_S_MIN = -(-3 * SESSIONS_KEPT_MS // 1_000)
"""Shortest time that a durable session is kept: three signs of life, so that one that is late or lost does
not let a session expire under its client."""

PUBLISH_BATCH_BYTES = 256 * KIB
"""Bytes of messages that the client publishes in one call."""

PUBLISH_BATCH_MAX = 1_000
"""Messages that the client publishes in one call."""

CLAIM_PAUSE_MS = 50
"""Pause before a group that nobody seems to lead is claimed again."""

STOP_LEADERS_MS_MAX = 1_500
"""Time at a stop for Leaders to store what they know; a catalog that is away must not hold the node."""

STOP_SESSIONS_MS_MAX = 1_000
"""Time at a stop for the last commits of durable sessions; with the Leaders' within a quarter of a stop."""

GROUPS_LED_MAX = 4_096
"""Groups that one node leads at once."""

STREAM_TAIL_BLOCKS_MAX = 4_096
"""The same, counted in commits: tiny ones would cost more as objects than as frames."""

STREAM_SNAPSHOT_BYTES = 16 * MIB
"""Growth of a shard between two snapshots of what it remembers; a start reads at most this and a commit
of each shard again: half a second for all shards."""

TOPICS_COUNTED_MAX = 65_536
"""Topics that are counted by name in one generation: some 8 MB; what goes beyond is counted together."""

TOPICS_CACHED_MAX = 65_536
"""Topics whose bytes and shard a node remembers; a publisher that invents more pays for looking again."""

TOPICS_MATCHED_MAX = 65_536
"""Topics of which a subscription remembers whether they match its filter; the rest is matched again."""

STREAM_PLACES_MAX = 1_024
"""Places in one segment that reads have ended at: as many readers go on without a seek."""

RETAINED_LOG_BYTES_MIN = 8 * MIB
"""The log of retained messages is not compacted below this, and above it when half of it is outdated."""

RETAINED_TOMBSTONE_S = 30 * 86_400
"""Time for which a node remembers that a retained message was removed, for nodes that still have one."""

DROPPED_LOG_READ_BYTES_MAX = 64 * KIB
"""End of `dropped.log` that a start reads: some 500 generations, the last ones are what matters."""

# --- pipeline -------------------------------------------------------------------------------------

ID_SET_BUCKET_BITS = 16
"""Bits of the hash that name a bucket: 65,536 buckets far outnumber the differences of sane sets."""

ID_SET_PIECE_ROWS = 65_536
"""Ids that a task hashes at once: enough that the call costs nothing, few enough for the cache."""

# --- spark ----------------------------------------------------------------------------------------

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

SPARK_BUNDLE_MESSAGES = 250_000
"""Small streams of one shard are read by one task up to this many messages: a task costs some 10 ms."""
