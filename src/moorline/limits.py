"""Room: limits. Every bound of the system, with its unit last in its name, and its reason."""

KIB = 1024
MIB = 1024 * KIB
"""Units of the others."""

# --- wire -----------------------------------------------------------------------------------------

FRAME_BYTES_MAX = 1 * MIB
"""Largest payload of a frame. A batch of 60 messages of 16 KiB fits; one peer can hold at most this
much of our memory before it has said anything whole."""

HELLO_FRAME_BYTES_MAX = 4 * KIB
"""Largest frame before the welcome, where no proofs are taken: a stranger gets very little memory."""

PROOF_BYTES_MAX = 64 * KIB
"""Largest token of a handshake: those of Kerberos carry the groups of a user, and reach this size."""

PROOF_FRAME_BYTES_MAX = PROOF_BYTES_MAX + HELLO_FRAME_BYTES_MAX
"""Largest frame before the welcome, where proofs are taken: a token, and the hello around it."""

PROOF_ROUNDS_MAX = 8
"""Challenges of one handshake: the longest mechanisms that are in use have three."""

RECORD_DATA_BYTES_MAX = 64 * KIB
"""Bytes of frames in one record of a wrapped link. Wrapping costs the same for each byte in any size from
here on (some 12 µs a KiB), and one record holds the loop for less than a millisecond."""

WRAPPED_AT_ONCE_BYTES = 4 * RECORD_DATA_BYTES_MAX
"""Bytes of one link that are wrapped in one turn of the loop, where more waits: 1.5 to 3 ms, a slice."""

RECORD_BYTES_MAX = RECORD_DATA_BYTES_MAX + 1 * KIB
"""Largest record: what wrapping adds is 60 to 80 bytes."""

KERBEROS_STEP_MS_MAX = 3_000
"""Time of a step of an acceptor. It asks no KDC; below the hello timeout, so that the peer hears why."""

KERBEROS_KDC_MS_MAX = 10_000
"""Time for a ticket. The library asks a KDC that hangs for 27 s; three datagrams fit into this."""

KERBEROS_STEPS_AT_ONCE_MAX = 16
"""Threads for steps of Kerberos, of acceptors and of initiators each: one that hangs cannot be taken back."""

KERBEROS_CLOCK_SKEW_S = 300
"""What krb5.conf has as `clockskew` where nobody says otherwise."""

KEYTAB_ENTRIES_MAX = 10_000
"""Entries of a keytab that are listed: those that are in use have some dozens."""

KEYTAB_BYTES_MAX = 4 * MIB
"""Of a keytab that is listed: 10,000 entries are smaller."""

PROOF_CHECKS_AT_ONCE_MAX = 256
"""Proofs of one node that are checked side by side. Above all the passwords that are hashed or wait for that
(PASSWORDS_WAITING_MAX of each kind), or who is known would wait for strangers before it finds its lane."""

PROOF_CATALOG_MS_MAX = 2_000
"""Time that the catalog has to say who somebody is: less than a hello may take, so that it hears why."""

PROOF_TIMER_MS_MAX = 86_400_000
"""Longest time that is waited for the end of a proof before it is looked at anew; some loops wait no longer
than a year, and fire then."""

MECHANISM_LENGTH_MAX = 32
"""Characters in the name of a mechanism."""

FRAMES_UNCHECKED_MAX = 64
"""Frames of a peer that are kept while its proof is checked. A read may hold very many small ones."""

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

SLICE_MS = 3
"""Time for which long work keeps the loop before others have their turn: unnoticed beside an fsync."""

CALLS_PER_STEP = 256
"""Calls of one kind that a handler gets together: enough that batches are cheap, few enough that others wait
little."""

ANSWERS_PER_WRITE = 16
"""Answers of one connection that wait to be encoded: only then is known whether its peer reads. The largest
ones are half a frame, so this is two write buffers at most."""

ANSWERS_AT_ONCE_MAX = 8
"""Answers of one connection that are read from the disk side by side: one write buffer of the largest."""

SESSION_TURN_MS = 5
"""Time for which the node handles what one client said before others get a turn: little beside an fsync."""

CLUSTER_NODES_MAX = 4_096
"""Nodes that an answer about a cluster names, those that are long gone included."""

NODES_PER_PAGE_MAX = 256
"""Nodes in one answer that tells all about them."""

HOMES_SHOWN_MAX = 64
"""Homes of one node that such an answer names; it counts the others."""

NODE_ADDRESSES_MAX = 64
"""Addresses of a node: one for each network that it listens on."""

ADDRESS_LENGTH_MAX = 512
"""Characters of an address: the name of a host has 253."""

ROLES_MAX = 64
"""Roles of a node; there are a handful."""

NODE_WARNINGS_MAX = 64
"""Sentences in which a node says what it does not do just now; there is one for each cause."""

CONNECTIONS_MAX = 15_000
"""Sockets one node accepts at once, lowered to what the open-files limit leaves (with a warning)."""

CONNECTIONS_MIN = 16
"""Connections that the open-files limit must leave room for: with fewer a node is of no use, and does not
start."""

FILES_ALWAYS_OPEN = 48
"""Files of a node beside those that are counted: standard streams, the lock, logs, the loop's own, listeners,
pipes of the embedded Postgres. An idle node has some 20."""

FILES_PER_SHARD = 3
"""A segment and its index; and a third while a generation follows another."""

TURNED_AWAY_MAX = 64
"""Sockets that are on their way out: peers that are told that they are too many, or were cut for another's
sake."""

ACCEPTS_PER_TURN = 64
"""Connections that one listener takes before others have their turn: some milliseconds."""

PATIENCE_MS = 20
"""Time that a peer has to say something before another one may take its place: a few turns of the loop."""

ACCEPT_BREATH_MS = 10
"""Pause of a listener that turns peers away, behind half of TURNED_AWAY_MAX: they have the time to leave, and
however many come, the node has most of its time for those inside."""

ACCEPT_PAUSE_MS = 500
"""Pause of a listener that the system gives no descriptor for a connection: it must not ask all the time."""

ACCEPT_NOTE_MS = 60_000
"""Time between two lines in the log about connections that were turned away."""

ACCEPT_NOTES_MAX = 256
"""Different lines of that kind that are remembered, so that none comes too often."""

GOODBYE_MS_MAX = 1_000
"""Time a closed peer has to read what is left for it; then its socket is cut."""

LISTEN_BACKLOG = 4_096
"""Connections the kernel holds while the loop is busy; a burst of reconnects after a restart."""

NAME_CHARACTERS_MAX = 128
"""Longest name of a node, a role or a piece of software: those of nodes have 63 characters at most."""

CODE_LENGTH_MAX = 64
"""Characters of a code, a reason or a status: ours have 20 at most."""

TEXT_LENGTH_MAX = 16 * KIB
"""Characters of a text for people; a longer one is cut where it is made. The longest of ours quote a filter,
in which each character may need ten to be shown."""

ROWS_PER_ANSWER_MAX = 65_536
"""Rows of an answer that has no pages, or whose pages end by their bytes: more do not fit a frame."""

RECORDS_PER_CALL_MAX = 2_048
"""Messages that are published in one call: all of them are stored at once, some five milliseconds. Twice
what our client sends."""

HEADER_BYTES_MAX = 0xFFFF
"""A name or value of a header as it travels: what a stored frame has room for. What a node takes of all
headers together is TOPIC_HEADERS_BYTES_MAX, and more is refused by name."""

HEADERS_MAX = HEADER_BYTES_MAX // 3
"""Headers of a message: more do not fit these bytes, however short they are."""

PEM_BYTES_MAX = MIB
"""What is looked at of a certificate or key that cannot be used: bundles of authorities are smaller."""

# --- machines -------------------------------------------------------------------------------------

STORY_EVENTS_MAX = 32
"""Last events that a machine keeps for the story in its error: enough to see how it came there."""

INBOX_EVENTS_MAX = 1_024
"""Events waiting for one machine: about one second of a busy session."""

# --- node -----------------------------------------------------------------------------------------

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

DOCTOR_DISK_FREE_BYTES = 1_024 * MIB
"""Room below which `moor doctor` advises to make some: sixteen times the reserve, a night of a small node."""

DOCTOR_SYNCS = 16
"""Blocks that it syncs to find how long the disk takes: a second on a slow one."""

DOCTOR_SYNC_MS = 20
"""Longest median of these that is not told: at more, one client gets 50 answers a second."""

DOCTOR_ANSWER_MS_MAX = 5_000
"""Time that a node or a catalog has to answer it."""

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

HTTP_CONNECTIONS_MAX = 64
"""Connections to the HTTP port at once that ask and are answered: probes, scrapers and browsers.
WebSockets and long polls are not among them: they take places of the node's connections."""

HTTP_REQUEST_BYTES_MAX = 16 * KIB
"""Largest head of a request: a browser sends the cookies of every program on its machine. When
more than that waits behind a request that is being answered, nothing is read until it is less."""

HTTP_HEADERS_MAX = 100
"""Headers of a request; a browser sends some twenty, a proxy adds a few."""

HTTP_TURN_MS = 5
"""Time of one turn of the loop for what the connections of the port have sent beyond what is heard at once:
little beside an fsync, and the same for all of them together."""

HTTP_EVENTS_PER_TURN = 64
"""Parts of a request that are heard at once: its head, its end, and chunks of its body, which may be of one
byte."""

HTTP_TIMEOUT_MS = 5_000
"""Time a client has for its TLS handshake, and for the head of a request, however slowly it sends it."""

HTTP_IDLE_MS = 60_000
"""Time a connection may stay without a request. Others may take its place long before."""

HTTP_BODY_MS = 30_000
"""Time for the body of a request: its bound over a slow line."""

HTTP_WRITE_MS = 30_000
"""Time a client has to read an answer that does not fit into the buffers between."""

HTTP_BODY_BYTES_MAX = 4 * MIB
"""Largest body that a route may take; each names its own bound, and most take none."""

HTTP_QUERY_FIELDS_MAX = 64
"""Fields of the query of a path."""

HTTP_NAMES_MAX = 1_000
"""Names and origins of the HTTP port in the settings."""

HTTP_PROXY_HOPS_MAX = 16
"""Proxies of HTTP, one behind the other, that a request may name: three are many."""

HTTP_BASE_PATH_CHARACTERS_MAX = 200
"""Of the path below which a proxy serves the node: a level or two."""

HTTP_LOGIN_MS = 30_000
"""Time for a proof to be checked, or for a WebSocket without one to bring it in a message: passwords of
others may wait before it."""

HTTP_PREFLIGHT_S = 600
"""How long a browser remembers what another origin may ask: a change of the settings is seen within that."""

WEBSOCKET_MESSAGE_BYTES_MAX = 1 * MIB
"""Largest message that a WebSocket takes, of however many fragments, unless its route says otherwise."""

WEBSOCKET_FRAGMENTS_MAX = 1_024
"""Fragments of one message: empty ones would never reach its bound."""

WEBSOCKET_BUFFER_BYTES = 256 * KIB
"""What waits for a slow reader before its subject is told: a second of a slow line."""

WEBSOCKET_BUFFER_BYTES_MAX = 16 * MIB
"""What may wait for it at all; beyond that it is cut, whatever its subject does."""

WEBSOCKET_INFLATE_BYTES = 1 * KIB
"""Compressed bytes that are unpacked between two looks at the bound of a message: they may become a thousand
times as many."""

WEBSOCKET_PIECE_BYTES = 16 * KIB
"""Of what has come: the parser gets it in pieces of that size, so that what waits is ours, and counted."""

WEBSOCKET_SUBPROTOCOLS_MAX = 16
"""Subprotocols that a client may offer."""

WEBSOCKET_CONTROLS_MAX = 64
"""Pings, pongs and empty frames of a peer within WEBSOCKET_CONTROLS_MS: they cost as much as a message, and
say nothing. A flood of them ends the connection; programs send one in some seconds."""

WEBSOCKET_CONTROLS_MS = 1_000
"""The time in which they are counted: a program that pings at each message is not cut for one burst."""

WEBSOCKET_FRAMES_PER_TURN = 64
"""Frames of one socket that are heard at once, within HTTP_TURN_MS: less than a millisecond of parsing."""

WEBSOCKET_STRANGER_FRAMES_MAX = WEBSOCKET_FRAGMENTS_MAX
"""Frames of whoever has not brought its proof yet: one message, in as many fragments as it may have."""

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

# --- access ---------------------------------------------------------------------------------------

PRINCIPAL_CHARACTERS_MAX = 255
"""Longest principal: what Postgres, Kerberos and file names of most systems take of a name."""

PROOF_MARK_BYTES = 32
"""What a resolver notes of the password or token by which the holder of a value's token was proven: the
versions of both in the catalog, and the first half of the token's hash."""

HOMES_TOLD_MAX = 8
"""Homes that a certificate of several nodes names, told where it is refused: enough to see whose it is."""

PASSWORD_BYTES_MAX = 1_024
"""Longest password as UTF-8. Who sends more wants us to hash it."""

PASSWORD_THREADS = 2
"""Passwords that are hashed at once: each takes a core for a quarter of a second, and 32 MiB."""

PASSWORDS_WAITING_MAX = 64
"""Passwords that wait for these threads, of principals that were here before and of others each: some eight
seconds of work, which is about as long as a client waits for its welcome."""

SCRYPT_COST = 15
"""log2 of scrypt's n; with r = 8 and p = 3 one of the equally strong settings of OWASP's list for stored
passwords, and of those the one that takes 32 MiB. Stored beside each hash, so that it can be raised."""

SCRYPT_BLOCK = 8
SCRYPT_LANES = 3
"""Its r and p, as SCRYPT_COST has them."""

SCRYPT_WORK_MAX = 1 << 22
"""n * r * p of a stored hash that is checked at all: five times ours. A row with more is damaged."""

SALT_BYTES = 16
"""Drawn for each password: no two are the same in the life of any cluster."""

LOCAL_NODES_MAX = 9
"""Of `moor cluster up`: each is a process with some 80 MB, and has ten ports of its own."""

LOCAL_NODE_READY_MS = 60_000
"""For a node of it to be ready, or to be as a command has made it; a first start takes seconds."""

PASS_LIFE_S = 12 * 3_600
"""For how long a page may act as whoever gave it a pass, at most: a working day."""

OIDC_ANSWER_BYTES_MAX = 256 * KIB
"""Largest answer of an issuer: its keys and its description have some KiB, a token with many groups a few
dozen."""

OIDC_HEAD_BYTES_MAX = 32 * KIB
"""Of the head of such an answer."""

OIDC_CALLS_AT_ONCE_MAX = 8
"""Calls of a node to its issuer that are open: who comes behind them waits, within the time of its login."""

OIDC_LOGINS_WAITING_MAX = 64
"""Answers of an issuer that are being looked at; behind that a login is refused and may be tried again."""

OIDC_LOGINS_PER_ADDRESS_MAX = 8
"""Of one address among them: people behind one proxy that is not trusted share it."""

OIDC_KNOWN_MS = 600_000
"""For how long keys and description of an issuer are taken as they were: a key that it has withdrawn is good
for so long still."""

OIDC_KEYS_AGAIN_MS = 10_000
"""Between two looks for a key that is not known: whoever invents names of keys is no reason to ask more
often."""

OIDC_KEYS_MAX = 64
"""Keys of an issuer: two or three at a time, more where it has many kinds."""

OIDC_FLOW_S_MAX = 600
"""Between the begin of a login and the answer that somebody brings from the issuer: it may be asked there for
a password and a second factor."""

OIDC_FLOWS_DONE_MAX = 16_384
"""Logins of that time which are done, so that none is done twice; only who is let in makes one."""

OIDC_CLOCK_SKEW_S = 60
"""By which the clocks of an issuer and a node may differ."""

OIDC_SESSION_S_MAX = 12 * 3_600
"""For how long a login by an issuer lasts, whatever its token says: a working day."""

OIDC_CODE_CHARACTERS_MAX = 2_048
"""Of the code that an issuer gives to a browser: some put a whole ticket into it."""

OIDC_GROUPS_MAX = 64
"""Groups of users that the claims of one token give."""

OIDC_VALUES_MAX = 1_024
"""Values of a claim that are looked at: groups of a large directory."""

OIDC_RULES_MAX = 256
"""Rules for principals, and for groups."""

OIDC_RSA_BITS_MIN = 2_048
"""Shorter keys of RSA are broken, or soon will be (RFC 7518, 3.3)."""

OIDC_RSA_BITS_MAX = 8_192
"""Longer ones take the loop's time and make nothing safer."""

PASSES_PER_PRINCIPAL_MAX = 16
"""Of one: a browser or two, asked for now and then."""

PASSES_MAX = 1_024
"""Passes that a node remembers; behind that the oldest goes."""

TOKEN_BYTES = 32
NONCE_BYTES = 32
"""Drawn by chance: nobody guesses 256 bits, and none is drawn twice."""

CREDENTIAL_BYTES_MAX = 4 * KIB
"""Of one step of a proof by a password, a token or the cluster's secret: a name, a password and what parts
them are below. A Kerberos ticket with many groups in it is larger."""

SECRET_FILE_BYTES_MAX = 4 * KIB
"""Of a file with a password, a token or a secret: one line."""

GUESS_WAIT_MS_MIN = 250
"""The first wait behind too many wrong guesses; it doubles with each."""

GUESS_WAIT_MS_MAX = 30_000
"""The longest one: two guesses a minute find no password that is not on a short list, and a person who
mistyped waits no longer than for a restart."""

NAME_GUESSES_FREE = 3
"""Wrong guesses of a name without a wait behind them: people mistype."""

NAME_GUESS_FORGOTTEN_MS = 60_000
"""One wrong guess of a name is forgotten in that time: ten minutes for the longest wait."""

ADDRESS_GUESSES_FREE = 20
"""The same of an address: many people may come from one."""

ADDRESS_GUESS_FORGOTTEN_MS = 30_000
"""Time after which one of them is forgotten: sooner than a name's, since others come from there too."""

THROTTLE_ENTRIES_MAX = 20_000
"""Names, and addresses, whose wrong guesses are remembered: some 3 MB each."""

THROTTLE_DROPPED_DIVISOR = 8
"""This part of a full table goes at once, the least guilty first: to look for one at a time would cost a walk
over all of them for each stranger."""

THROTTLE_KNOWN_NAMES_MAX = 100_000
"""Names whose addresses are remembered because they gave the right password: as many as there are users."""

THROTTLE_KNOWN_ADDRESSES_MAX = 8
"""Addresses of one of these: a few machines, and the last ones of somebody who travels."""

THROTTLE_KNOWN_MS = 7 * 86_400_000
"""How long such an address is remembered: who comes every working day stays known."""

COMMON_NAME_CHARACTERS_MAX = 64
"""Of a certificate that `moor cert` issues: the bound of X.509 (ub-common-name)."""

CERTIFICATE_DAYS_MAX = 36_500
"""Longest life of one: a hundred years are a mistake, and more is beyond what some programs can read."""

CERTIFICATE_BACKDATED_S = 300
"""A new certificate, and a new revocation list, begin that long ago: clocks of machines differ."""

TLS_FILES_LOOK_MS = 2_000
"""Time between two looks at the files of TLS: a change is loaded when two looks saw the same, so that a
certificate and its key, written one after the other, are loaded together."""

TLS_EXPIRY_WARNING_MS = 14 * 86_400_000
"""A certificate of the node, or of an authority, that ends sooner is told in /healthz: two weeks are enough
for a person who comes back from a holiday."""

TLS_EXPIRY_LOG_MS = 86_400_000
"""Time between two lines of the log about the same expiry."""

GRANT_PATH_BYTES_MAX = 1_024
"""Longest path of a row. With a principal of four bytes a character it still fits a key of Postgres."""

GRANT_LEVELS_MAX = 34
"""Levels of a path: those of a topic, the subtree that it is in, and one more for names with a slash."""

GRANT_ROWS_MAX = 100_000
"""Rows of the table, which every node has in memory: some 60 MB, and a second to load."""

ACCESS_USERS_MAX = 100_000
"""Users of the catalog; each node knows which of them are disabled."""

ACCESS_TOKENS_MAX = 100_000
"""Tokens of all users; each node knows which of them are still there."""

ACCESS_MEMBERS_MAX = 100_000
"""Memberships in groups of users, which every node has in memory."""

ACCESS_QUOTAS_MAX = 10_000
"""Rows of quotas, which every node has in memory."""

ACCESS_OWNERS_MAX = 100_000
"""Owners by their old names that were given a principal."""

GROUPS_PER_PRINCIPAL_MAX = 64
"""Groups of users that one principal is in: each is looked for at each level of a path."""

SUBJECTS_KNOWN_MAX = 4_096
"""Principals with their groups, of which all connections have the same: some 600 bytes each."""

VERDICTS_KEPT_MAX = 4_096
"""Verdicts that are remembered for one principal, whatever connections it has; then they are forgotten. As
many names again where it published in batches."""

VERDICTS_OF_ALL_MAX = 131_072
"""The same of all principals: some 20 MB, and 150 MB where all paths are as long as they may be."""

ACCESS_CHANGES_AT_ONCE_MAX = 1_000
"""Changes that are put into the table between two turns of the loop, some 20 ms: a verdict never sees a part
of them. Who missed more builds a new table beside the old one."""

EXPLAINED_ROWS_MAX = 64
"""Rows that an explanation names."""

ACCESS_REVOCATION_MS = 2_000
"""What is not granted any more ends within that time, on every node that reaches the catalog."""

ACCESS_LOOKS_PER_REVOCATION = 4
"""Looks for changes within that time: one that is lost leaves the time for another."""

ACCESS_STALE_MS = 25_000
"""Known rights and nodes go on for that long without the catalog: less than a node keeps its identity, so
that callers are refused with a word before nothing is answered at all."""

READ_FILTERS_MAX = 64
"""Filters of one read of a stream: every name in a block of messages is matched with each of them."""

ACCESS_LOG_ROWS_MAX = 10_000
"""Changes of rights that the catalog remembers: a node that missed more loads everything."""

ACCESS_PAGE_ROWS = 256
"""Rows of one answer to a listing: three quarters of a frame at the longest paths and names."""

PASSWORD_HASHES_AT_ONCE = 2
"""Passwords of new users that are hashed side by side: 64 MB."""

USERS_PAGE_BYTES_MAX = FRAME_BYTES_MAX // 2
"""A page of users ends there: with all its groups and tokens a single one may have 200 KB."""

TOKEN_LABEL_CHARACTERS_MAX = 128
"""Longest label of a token: what it is for, in some words."""

TOKENS_PER_USER_MAX = 256
"""Tokens of one user; each is for a program or a machine."""

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
"""Calls that wait for the end of a queue's repair; beyond it they are refused. A check takes milliseconds."""

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

# --- reconciliation -------------------------------------------------------------------------------

RECONCILE_STARTS_MAX = 16
"""Comparisons from the beginning, because the own set changed under them; one is usual, and each ends the
change that it found."""

WALKED_RANGES_MAX = 262_144
"""Ranges that a walk asks for in one level, about 40 MB; what differs beyond it is listed, not divided. A
million ids of which all differ come to 65,536."""

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

SERVICE_CHECK_QUEUES = 16_384
"""Queues of a service that are hashed anew together, about: 700 KB, and two milliseconds of the loop."""

REHASH_BATCH = 100_000
"""Associations with a wrong hash that are put right in one transaction: a few seconds."""

WRONG_QUEUES_TOLD_MAX = 100
"""Those of them that an answer names: 2.6 KB."""

SERVICE_SKETCHES_MAX = 64
"""Services whose sketch (121 KB) a node keeps in memory."""

SERVICE_PARTS_PER_PAGE = 8
"""Homes, each with its addresses, that one answer about the parts of a service names: below a block."""

SERVICE_PARTS_MAX = 256
"""Homes at which a client keeps a part of its service: HOMES_FOLLOWED_MAX, since each needs a connection."""

SERVICE_PARTS_TOGETHER = 8
"""Parts that a client brings to agreement at once; each may hold a sketch of 121 KB and a page of queues."""

SERVICE_EPOCHS_LOOK_MS = 1_000
"""A node looks so often whether its services were taken over at other nodes: one statement for all of
them. So long, at most, an older session may still be sent what the newer one will be sent again."""

SERVICE_ADOPTED_TOGETHER = 5_000
"""Associations of before there were parts that a node takes into its own by one statement."""

SERVICE_PART_RETRY_MS, SERVICE_PART_RETRY_MS_MAX = 500, 10_000
"""Pauses before a home that is away is tried again: the first one, and the longest, each jittered by half."""

ROUTE_MS_MAX = 5_000
"""Time for which a node remembers whose a queue is; a change elsewhere is noticed after this."""

ROUTE_RETRY_MS = 500
"""Pause before a catalog that did not answer is asked again."""

ROUTES_MAX = 65_536
"""Queues whose service a node remembers."""

# --- topics and streams ---------------------------------------------------------------------------

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

SESSION_NAME_BYTES_MAX = 256
"""Longest name of a session."""

SESSION_EXPIRY_S_MAX = 10**8
"""Longest time that a durable session is kept without its client: three years."""

RETAINED_BYTES_MAX = 512 * KIB
"""Retained messages that another node gives at once; those of a wider filter come page by page."""

RETAINED_WALKS_MAX = 16
"""Places among retained messages that are kept for the next page of another node: each may hold a list of
all topics of a level. Behind that the next page is found by going there again."""

# --- groups ---------------------------------------------------------------------------------------

CURSOR_RANGES_MAX = 65_536
"""Ranges, and failures, of one place: at most one hole for each message that a member may have in hand."""

BORROWER_LEASES_MAX = 65_536
"""Leases in the last word of a Borrower: one for each shard of sixty-four of the largest nodes."""

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

BORROWERS_STRANGE_MAX = 64
"""Those of them that a Leader never knew: only a question that was overtaken by its goodbye needs them."""

QUEUE_SLICE_MAX = 256
"""Messages of one lock of a `$queue` group: a frame of the wire of usual ones."""

RANGES_PER_TAKE_MAX = 10_000
"""Ranges of one answer: some 200 KB. A stream has more only where members left that many holes."""

LOST_RANGES_MAX = 1_024
"""Losses that a client confirms in one message; ours confirms each by itself."""

FEED_LOSSES_MAX = 512
"""Losses of one lease that its reports carry, or that its client has not confirmed: some 16 KB. Then nothing
more is read under it, and the Leader gives the stream under a new lease. A `$queue` lock has fewer."""

LEASE_LOSSES_MAX = 65_536
"""The same on the wire: the loss that brings a feed to that bound may itself be of many pieces, one for each
hole between what the client has in hand."""

DISCONNECT_LOSSES_MAX = 8_192
"""Losses of all leases in the last word of a Borrower: some 250 KB. Its reports have said them before."""

NODE_SEEN_MS = 1_000
"""Time between two signs of life of a node in the catalog, and two looks for other nodes."""

IDENTITY_LEASE_MS = 30_000
"""Publishing goes on for that long while the catalog is away; a restart of Postgres takes a few seconds."""

IDENTITY_MARGIN_PARTS = 50
"""A node takes its lease for that part shorter than the catalog does: clocks do not run equally fast."""

IDENTITY_RENEWALS = 5
"""Tries to renew the lease of an identity within its time; short leases only, long ones see NODE_SEEN_MS."""

INCARNATION_BYTES = 16
"""Drawn at each start, so that no two starts are taken for one."""

INCARNATIONS_KEPT_MAX = 16
"""Starts that a data folder remembers: the last one, and those that were refused or cut short since."""

HOME_DRAWS_MAX = 64
"""Draws of a home's number that may meet another home's: with a million homes one in four thousand does."""

HOME_EXCEPTIONS_PER_SLICE = 5_000
"""Exceptions that one statement writes into the catalog, and of twice as many rows it looks whether they are
still right: some 120 KB and 70 ms."""

HOMES_STOP_MS_MAX = 500
"""A stop waits so long for what is asked or written about homes."""

HOME_EXCEPTIONS_RETRY_MS = 5_000
"""Pause before exceptions that the catalog did not take are tried again."""

HOMES_ASKED_MAX = 10_000
"""Queues whose home is asked from the catalog by one statement."""

HOME_ADDRESSES_MAX = 16
"""Addresses of its home that a redirect names; a node listens at two or three."""

REDIRECT_HOPS_MAX = 3
"""Redirects that a client follows for one call: to the home, and twice more while homes move."""

HOMES_FOLLOWED_MAX = 256
"""Homes that a client lets itself be led to over one connection; more are told to it by nobody honest."""

CLIENT_RETURN_MS = 500
"""A client that was cut dials again within it, by chance; it doubles with each round that leads to nobody.
10,000 of them come at 20 in a millisecond at most, which a node welcomes."""

CLIENT_RETURN_MS_MAX = 15_000
"""The same behind many rounds: a node that is back is found soon, and one that is away is asked rarely."""

CLIENT_DEADLINE_S = 60.0
"""How long a call of a client that stays may take, with all the time that no node is there."""

CLIENT_ASKS_MAX = 65_536
"""Calls of one client that wait for a node or an answer: more are refused, and nothing of them was done."""

CLIENT_SERVICE_TRIES = 8
"""Times that a service is entered on one connection while the node says that it cannot just now."""

CLIENT_PLACES_MAX = 64
"""Addresses that one client is given."""

CLIENT_EVENTS_MAX = 1_024
"""Events that one reader of them has not taken; the oldest go first, and are counted."""

CLIENT_SHARDS_MAX = 16_384
"""Shards of which a plain subscription says where it was; so many fit a frame."""

CLIENT_RANGES_MAX = 32_768
"""The same for all shards of it together: half a frame."""

CLIENT_CURSOR_RANGES_MAX = 1_024
"""Ranges done above the mark that a resumed subscription names for one shard: what is above comes again."""

HOMES_KEPT_MS = 2_000
"""For how long a node takes what it knows of the homes of others for true: half of NODE_GONE_MS."""

NODE_GONE_MS = 5_000
"""Silence in the catalog after which other nodes do not try to reach a node any more."""

CLUSTER_LOOK_MS = 5_000
"""Time between two looks of a node at the figures of its cluster, for its metrics."""

CLOCK_QUESTION_MS_MAX = 1_000
"""For how long a question for the catalog's clock may take: its answer is wrong by half of that at most."""

PEER_RETRY_MS = 200
"""Pause before a link to another node is tried again."""

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

PUBLISH_BATCH_BYTES = 256 * KIB
"""Bytes of messages that the client publishes in one call."""

PUBLISH_BATCH_MAX = 1_000
"""Messages that the client publishes in one call."""

PUBLISH_BATCHES_AT_ONCE = 64
"""Batches of one `publish_all` that are in memory: 16 MiB at most, and enough that the node never waits."""

PUBLISH_BATCHES_IN_FLIGHT = 8
"""Batches of lines that `moor topic publish` has sent and that are not answered: the next ones are made while
the node stores these."""

LOSSES_LOOK_MS = 200
"""Time between two looks of `moor topic tail` for lost messages: perhaps nothing follows to show them."""

OPERATION_MS_MAX = 15_000
"""Time beyond a lease in which an operator's call may have its effect, by the catalog's clock."""

OPERATOR_LENGTH_MAX = 512
"""Characters of an operator's name that are passed on and written down with what it asks for."""

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

PICK_SHARE_MAX = 1 / 32
"""Of the messages of a stream. To pick one costs as much as to read some twenty of those that follow each
other: above it, everything is read."""

PICK_NEAR_BYTES = 8 * KIB
"""Picked frames that are nearer to each other are read together, with what is between them."""

PICK_MESSAGES_MAX = 4_096
"""That a reader picks at once, and so looks up in the dense index."""

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

# --- staged writes --------------------------------------------------------------------------------

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

# --- MQTT: packets and machines -------------------------------------------------------------------

MQTT_CONNECT_BYTES_MAX = 128 * KIB
"""Largest CONNECT: a token of Kerberos, a will and names fit; a stranger gets no more memory than this."""

MQTT_USER_PROPERTIES_MAX = 1_024
"""User properties of one packet. Each costs an object, and may be 5 bytes on the wire."""

MQTT_FILTERS_PER_PACKET_MAX = 10_000
"""Filters of one SUBSCRIBE or UNSUBSCRIBE: clients that bring all of theirs at a start have thousands."""

MQTT_TOPICS_KNOWN_MAX = 256
"""Topics whose text a connection keeps, because clients name the same few again and again."""

MQTT_TOPIC_KNOWN_BYTES_MAX = 256
"""Longest of them: those of one connection are some 100 KiB at most."""

MQTT_PROPERTIES_KNOWN_MAX = 64
"""Properties of messages that a connection keeps read: what stays the same from one message to the next."""

MQTT_PROPERTIES_KNOWN_BYTES_MAX = 256
"""Longest of them, as bytes of a packet."""

MQTT_HELD_PACKETS_MAX = 4_096
"""Packets of one client that wait until it is let in: what one read may hold of short ones is more, and a
client that sends so much before its CONNACK can wait for that."""

PROXY_HEAD_BYTES_MAX = 2 * KIB
"""Head of the PROXY protocol with all that a proxy adds (names, certificates): those in use have 200."""

PROXY_HEAD_MS = 3_000
"""Time for it: a proxy says it at once."""

PROXY_SOURCES_MAX = 256
"""Networks of proxies that a setting names."""

MQTT_AUTH_ROUNDS_MAX = 8
"""AUTH packets of a client in one authentication; mechanisms that are in use need two or three."""

FILTER_INDEX_KNOWN_MAX = 4_096
"""Topics for which a node keeps who is to be woken; to find it anew takes some microseconds."""

FILTER_INDEX_READERS_KNOWN_MAX = 64
"""Readers of such a topic: with more of them it is looked up each time, so that the memory has a bound."""

MQTT_GRANTS_KNOWN_MAX = 1_024
"""Topics of one session for which is kept what its overlapping subscriptions grant."""

# --- audit trail, quotas and turns ----------------------------------------------------------------

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

TOPIC_NAMES_MS = 3_600_000
"""Time for which a topic counts that a principal has published to, and at most once more: an hour is longer
than a program that makes names by mistake goes unnoticed."""

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

# --- jobs on Spark --------------------------------------------------------------------------------

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

# --- the resolver and values ----------------------------------------------------------------------

PATH_BYTES_MAX = 1_024
"""Of a path in the resolver's tree: as long as a topic may be."""

PATH_LEVELS_MAX = 32
"""Levels of such a path: a row of rights can name each of them."""

PATHS_PER_CALL_MAX = 1_000
"""Paths of one call to a resolver, its micro-batch: some 3 ms of work, so that others have their turn."""

PUBLISHERS_PER_ANSWER_MAX = 4_096
"""Publishers that one answer tells of, and of one path: more than publish the same thing anywhere."""

REFERRAL_ADDRESSES_MAX = 32
"""Resolvers of one cluster."""

RESOLVER_MECHANISMS_MAX = 8
"""Mechanisms that a publisher takes: there are fewer."""

RESOLVER_RULES_MAX = 256
"""Rules that map certificates and tickets to principals, as a publisher is told of them."""

VALUES_PER_MESSAGE_MAX = 16_384
"""Updates of one message: some 256 KiB of small values."""

ORDERED_CHUNK_PATHS_MAX = 512
"""Paths of one sorted list of the resolver's tree: what a change moves, some 4 KiB."""

GLOB_ALTERNATIVES_MAX = 64
"""Texts that the braces of one level of a glob stand for."""

ENTRIES_HASHED_AT_ONCE = 512
"""Entries of a publisher between two of which others have their turn, when all are hashed: half a ms."""

ENTRIES_LISTED_MAX = 65_536
"""Entries in the lists of one answer to a publisher that walks ranges: half a frame of their hashes."""

ENTRIES_TAKEN_AT_ONCE = 64
"""Entries that a publisher brings, between two of which others have their turn: half a ms."""

SUBTREES_JUDGED_MAX = 4_096
"""Subtrees whose right is remembered while the entries of one publisher are judged again; what is in others
is looked up path by path."""

ENTRIES_PURGED_AT_ONCE = 64
"""Entries of a publisher that is gone, between two of which others have their turn: far below a slice."""

RESOLVER_TICKS_PER_TTL = 4
"""Looks for publishers that are silent, within a ttl: what is dead is gone after 1.25 of it at most."""

RESOLVED_TOKENS_MAX = 4_096
"""Tokens of one answer: with their publishers they fit a frame. Where a path has more than its share, those
of the best priority are told, chosen by chance."""

PATHS_LOOKED_AT_MAX = 20_000
"""Paths that one call for a list or a match looks at, seen or not: some 60 ms of work, in slices."""

WATCHES_PER_SESSION_MAX = 64
"""Globs that one connection watches."""

WATCHES_PER_PRINCIPAL_MAX = 1_024
"""Globs that one principal watches on a node, or all strangers of one address: a quarter of all."""

WATCHES_MAX = 4_096
"""Globs that are watched on a node: each costs a look at every path that changes below its root."""

WATCH_CHANGES_MAX = 20_000
"""Changes that wait to be matched for one principal: twenty calls. Beyond it they are lost, which it is told.
A path that is gone stays in memory for as long: 20 MB of the longest."""

WATCH_PENDING_PATHS_MAX = 1_000
"""Changes that wait for one reader: one message of them. Beyond it they are lost, which it is told."""

WATCH_PENDING_PER_PRINCIPAL_MAX = 20_000
"""The same for all watches of one principal: some 2 MB, and one message of each is far below its buffers."""

WATCH_PENDING_ALL_MAX = 200_000
"""The same for all watches of a node: some 20 MB."""

WATCH_FLUSH_MS = 20
"""Pause in which changes of what is watched are gathered."""

RESOLVER_DIALS_MAX = 64
"""Addresses of publishers that are dialled at once."""

RESOLVER_DIALS_PER_PRINCIPAL_MAX = 16
"""Those of one principal, or of all strangers of one address: a quarter, so that what it claims and nobody
answers keeps no other from a login."""

RESOLVER_DIALS_PER_ADDRESS_MAX = 4
"""Those of one principal to the same address: one that is silent leaves places for its other logins."""

RESOLVER_DIALS_WAITING_MAX = 1_024
"""Logins whose addresses wait to be dialled; beyond it a login is refused."""

RESOLVER_DIALS_WAITING_PER_PRINCIPAL_MAX = 512
"""Those of one principal: half, so that others may wait beside it."""

ADDRESS_NOT_PROVEN_MS = 1_000
"""Least time from the dial of a login until it hears that its address is not proven, where
`resolver.proof_timeout_ms` is less: who looks for open ports gets one answer a second, the same for all."""

CLUSTER_ENTRIES_LOOK_MS = 1_000
"""Pause between two looks of a resolver at the nodes and homes of the catalog."""

RIGHTS_CHANGED_MS = 100
"""Pause in which changes of rights are gathered before publishers hear of them."""

PAYLOAD_OF_HEARTBEAT_BYTES_MAX = 256 * KIB
"""Largest sketch or list that goes with the answer to a heartbeat; beyond it the ranges are walked."""

OUTLET_BATCHES_MAX = 64
"""Batches that wait for one subscriber beside what its socket holds: some seconds of a busy publisher."""

OUTLET_BYTES_MAX = 8 * MIB
"""Bytes of them: a thousand slow subscribers are 8 GB at the worst, and each is cut there."""

PUBLISHER_FAILED_MS = 60_000
"""How long a publisher that failed comes behind those that did not."""

FAILED_PUBLISHERS_MAX = 10_000
"""Publishers whose failures a subscriber remembers at once."""

TRIED_PATHS_MAX = 10_000
"""Paths of which a subscriber remembers who was tried for them without success, for those who try once."""

TRIED_PUBLISHERS_MAX = 1_024
"""Publishers of one path that are remembered so: more than anybody tries one after the other."""

DURABLE_STEP_MS = 250
"""By so much each try of a durable subscription waits longer than the one before it."""

DURABLE_WAIT_MS_MAX = 10_000
"""And no longer than that: a publisher that comes back is found within ten seconds."""

DURABLE_TICK_MS = 50
"""Tries that are due within one tick are one batch: a lost publisher of 10,000 values costs a handful."""

DURABLE_PATHS_PER_ASK = 10_000
"""Paths that one batch of a durable subscriber resolves."""

DURABLE_ASKS_MAX = 4
"""Batches under way at once: one that waits for a resolver that hangs does not keep all others waiting."""

REPLICA_CHANGES_MAX = 1_000
"""Changes that are remembered for a resolver that has yet to confirm those before; beyond it digests tell."""

REPLICA_TRIES_MAX = 3
"""Tries to reach a resolver before it is degraded, as the specification says."""

REPLICA_PAUSE_MS_MIN = 1_000
REPLICA_PAUSE_MS_MAX = 4_000
"""Between two tries, by chance: publishers that lost a resolver together do not come back together."""

REPLICA_TTL_MS = 30_000
"""What a resolver's ttl is taken for until it has said its own."""

VALUE_DEPTH_MAX = 32
"""Levels of lists and maps in a value: more than anybody reads, and far from the stack's end."""

VALUE_HEARTBEAT_MS = 5_000
"""A publisher says at least so often to each subscriber that it is there, as the specification says."""

VALUE_DEAD_MS = 100_000
"""A publisher that said nothing for so long is lost, as the specification says."""

VALUE_LAST_LOOK_MS = 50
"""Before a publisher is taken for dead, for what has come while our own process stood still."""

SUBSCRIBED_BYTES_MAX = 512 * KIB
"""Values of one answer to a subscription: half a frame. One that is larger comes alone."""

VALUE_ROOM_BYTES = 32 * KIB
"""What a value leaves free in a frame: for what the same answer says of two thousand others."""

CLAIMS_PER_CALL_MAX = 2_000
"""Paths of one call for values: with tokens of 64 bytes some 300 KB."""

WRITE_ANSWER_MS = 15_000
"""A resolver that does not answer a write for so long hangs, as the specification says."""

WRITE_ANSWER_US = 12
"""The same for each path of a write, in microseconds, where that is longer."""

REPLICA_CALLS_AT_ONCE = 32
"""Micro-batches of a batch; two batches are on their way to one resolver."""

REFERRALS_MAX = 16
"""Referrals that are followed for one path: clusters that name each other in a ring end there."""

DOUBTED_MS_MAX = 2_000
"""For a resolver's word on tokens that were made before a change of rights; behind it they count. The
subscriber waits for its answer meanwhile, five times as long by default."""

ON_DEMAND_AT_ONCE_MAX = 4_096
"""Claims of subscribers that wait at the same time for values that are made on demand: some MB of calls."""

PUBLISHER_CONNECTIONS_MAX = 4_096
"""Subscribers of one publisher, unless it says otherwise."""

VALUE_EVENTS_MAX = 4_096
"""Events of one subscription that wait for who reads them."""

VALUE_BATCHES_MAX = 1_024
"""Batches that wait for who reads all updates of a subscriber."""

READ_ROUNDS = 3
"""Times that a batch tries every resolver of its list before it fails."""

READ_PAUSE_MS_MIN = 1_000
READ_PAUSE_MS_MAX = 4_000
"""Pause of a batch behind a round in which nobody answered, drawn between the two: a resolver that comes back
is not met by all of its readers at once."""

READ_PARTS_AT_ONCE = 8
"""Calls of one batch that are under way at a resolver: it always has the next one at hand."""

READ_ANSWER_MS = 15_000
"""Least time that a resolver has for its next answer before it is taken to hang."""

READ_ANSWER_US = 6
"""Time for each path of a batch, in microseconds, where that is more."""

RESOLVER_CLUSTERS_KEPT_MAX = 64
"""Clusters that a reader keeps connections to: its own, and those that it was referred to."""

WATCH_KEPT_MAX = 1_000
"""Messages of a watch that wait for the program that watches; beyond it they are lost, which it is told."""

ON_DEMAND_MS_MAX = 30_000
"""Time that the value of a path has to be made on demand: who subscribes does not wait longer either."""

WRITES_AHEAD_MAX = 64
"""Values that one subscriber has written back without waiting, and that are not done: the next ones wait."""

WRITER_MS_MAX = 30_000
"""Time that a publisher's writer has for one value."""

VALUE_BATCH_UPDATES_MAX = 16_000_000
"""Updates of one batch that a subscriber gathers before its end: who never ends one is hostile."""

# --- the copy of a client of records --------------------------------------------------------------

RECORD_CHANGES_MAX = 65_536
"""Changes that wait for a program that reads those of its copy; beyond it, the latest of each key."""

RECORD_CLIENT_RETURN_MS = 5_000
"""A client of records that was cut returns within it, by chance: a change of rights cuts many at once."""

RECORD_CLIENT_RETURN_MS_MAX = 60_000
"""The same, behind many tries that led to nothing."""

RECORD_CACHES_ASIDE_MAX = 100
"""Caches that were set aside beside one: whoever has so many has something else to mend."""

RECORD_LISTED_MAX = 65_536
"""Hashes in the lists that are asked for at once: 512 KB, which fit a frame."""

RECORD_PAYLOAD_BYTES_MAX = 768 * KIB
"""Sketch or list that goes with an answer: it fits a frame. Where more is needed, all rows are sent."""

RECORD_ANSWER_MS_MAX = 120_000
"""Time for an answer in a sync by digest: the sketch of 10^7 rows takes some seconds."""

RECORD_PART_BYTES = 512 * KIB
"""Of messages over the native protocol that fit no frame."""

RECORD_RESUME_BYTES_MAX = 512
"""What a client knows, in a resume: a brief cursor with some fifty open transactions, and a digest."""

RECORD_PARTS_BYTES_MAX = 64 * MIB
"""All parts together: as much as a client holds of one row before it is whole."""

# --- records --------------------------------------------------------------------------------------

RECORD_TABLES_MAX = 64
"""Tables of one set of subscriptions: a page that shows more shows nothing."""

RECORD_WHERE_COLUMNS_MAX = 16
"""Columns of one filter."""

RECORD_COLUMNS_MAX = 1_600
"""Postgres has no more in a table."""

RECORD_IDENTIFIER_CHARACTERS_MAX = 128
"""Postgres has 63 bytes; a table may be named with its schema."""

RECORD_KEY_COLUMNS_MAX = 4
"""Columns of a key."""

RECORD_KEY_CHARACTERS_MAX = 1 << 20
"""Of one column of a key: an index of Postgres takes 2,704 bytes of it, compressed 255 to 1 at most."""

RECORD_LEVELS_MAX = 256
"""Levels of a value in msgpack: readers go down by recursion, those of Python to some 900 in all. What is
deeper comes as text."""

RECORD_CURSOR_CHARACTERS_MAX = 16_384
"""A cursor with a thousand open transactions has half of it."""

RECORD_KNOWN_CHARACTERS_MAX = 1 << 20
"""Known ids in ranges, as text: some hundred thousand ranges."""

RECORD_PREFIXES_MAX = 4_096
"""Ranges asked for at once: sixteen levels below each of the first 256."""

RECORD_MESSAGES_MAX = 16_384
"""Messages in one of a WebSocket."""

RECORD_VALUE_CHARACTERS_MAX = 1_024
"""Of one value of a filter: as long as a key, and an owner is a level of a path."""

RECORD_WHERE_VALUES_MAX = 1_000
"""Values of one column in a filter: more are a table of their own."""

RECORD_PERMIT_OWNERS_MAX = 10_000
"""Owners that one permit names: each is in the condition of its scans, some 200 KB."""

RECORD_KNOWN_IDS_MAX = 2_000_000
"""Ids that a client says it knows, in ranges: each may become a deletion, some 100 MB and a second of all of
them, for a few characters. More are told by digest."""

RECORD_CURSOR_OPEN_MAX = 1_000
"""Open transactions in a cursor; with more of them it says that there is no replay."""

RECORD_EPOCH_CHARACTERS_MAX = 128
"""A uuid, a system identifier and a timeline."""

RECORD_RECENT_BYTES_MAX = 16 * MIB
"""Changes of a table's last steps that a node keeps for those who are behind; more are read from the log.
All of them are folded, and sent, in one turn of the loop: at most some 40 ms."""

RECORD_STEP_MS = 20
"""Time from the end of a step of a table's feed to the next one: an idle one costs Postgres 0.2 ms."""

RECORD_SCANS_AT_ONCE_MAX = 8
"""Scans and replays of a table that are under way at once on a node."""

RECORD_LOOKED_AT_MAX = 1_000
"""Waiting subscriptions for which there is no room that one step passes over."""

RECORD_ADMITTED_PER_S = 200
"""Scans and replays of a table that are begun on a node in a second; equal subscriptions are one scan."""

RECORD_WAITING_MAX = 20_000
"""Subscriptions of a table that wait to be admitted; beyond it they are told when to return."""

RECORD_RETURN_MS_MAX = 10_000
"""Longest time behind which a client that was booted returns, drawn by chance, for 1,000 that were."""

RECORD_SLOW_MS = 60_000
"""A client whose buffer is full for so long is cut, with its cursor."""

RECORD_CURSOR_FRESH_MS = 60_000
"""An audience that nothing happens to gets a new cursor so often: the log behind an old one goes away."""

RECORD_UNSETTLED_MAX = 100_000
"""Rows that were sent of a step that failed, and are remembered until the next one: some 40 MB."""

RECORD_WITNESSED_MAX = 20_000
"""Digests that a witness of a table remembers: a minute and a half of a table that changes all the time."""

RECORD_HEALS_MAX = 3
"""Times in a row that a copy which differs at the end of a sync heals by digest, before it begins anew."""

# --- records: capture -----------------------------------------------------------------------------

RECORDS_CONNECTIONS_MAX = 8
"""Connections of a node to one database of users: a step of some tables, and scans beside them."""

RECORDS_CONNECT_MS_MAX = 10_000
"""Time for a connection to a database of users."""

RECORDS_STATEMENT_MS_MAX = 600_000
"""Time of one statement there: a scan of 10^8 rows for slow readers ends within."""

RECORDS_READ_LOCK_MS = 500
"""Time for which a node that reads waits for a table's lock. An ALTER TABLE that it waits for may wait for
what the node reads elsewhere, and behind it wait all who write."""

RECORDS_LOCK_MS = 2_000
"""Time that a registration waits for the lock of a table; everybody who comes behind waits with it."""

RECORDS_LOCK_TRIES = 5
"""Times that it tries before it says that the table is busy."""

RECORDS_LOCK_PAUSE_MS = 500
"""Between two of them, so that who waited behind it has its turn."""

RECORDS_INDEX_MS_MAX = 3_600_000
"""Time to build the index of a table beside its writers: 10^9 rows take some twenty minutes."""

RECORDS_LOG_ROWS_MAX = 1_000_000
"""Lines of the log of a table beyond the first that is kept: some 150 MB, and the bound of what a stopped
Moorline costs the user's disk."""

RECORDS_LOG_LIFE_S = 3_600
"""Age at which lines go: who comes back later is reconciled by its digest."""

RECORDS_MOMENTS = 100
"""Moments that are kept of the life of a log, so that a line goes at most a hundredth of it later."""

RECORDS_SEEN_S = 10
"""Time for which lines beyond the bound of a log stay: whoever follows the table has seen them then."""

RECORDS_PRUNE_ROWS_MAX = 50_000
"""Lines that go in one transaction."""

RECORDS_CHUNK_ROWS_MAX = 1_000
"""Rows in a part of a step or scan: some milliseconds of work."""

RECORDS_CHUNK_BYTES_MAX = 1 * MIB
"""Bytes of a part, one row beyond it included: what one reader holds in memory."""

RECORDS_KEYS_CHUNK_ROWS_MAX = 20_000
"""Keys in a part of a scan of keys: some 10 ms of work."""

RECORDS_COPY_BLOCKS_MAX = 4
"""Blocks of a stream of rows that wait for their reader; Postgres waits behind them."""

RECORDS_VALUES_KEPT_MAX = 16_384
"""Values of scope columns, of all tables, whose form is remembered: some megabytes."""

RECORDS_KEYS_ASKED_CHARACTERS_MAX = 4 << 20
"""Of all keys that one statement names: keys are short, and may be very long."""

RECORDS_KEYS_ASKED_MAX = 10_000
"""Keys that one statement fetches rows of."""

RECORDS_NOTIFIED_LINES_MAX = 200_000
"""Lines of a table, with the capture `notify`, that wait for a step; beyond them everything is resynced."""

RECORDS_NOTIFIED_BYTES_MAX = 64 * MIB
"""Bytes of them."""

RECORDS_MARKER_MS_MAX = 20_000
"""Time within which a node hears its own marker, with the capture `notify`: behind it the queue of Postgres
is stuck."""

RECORDS_TABLES_MAX = 1_000
"""Registered tables of one database."""

RECORDS_NAME_CHARACTERS_MAX = 128
"""Of the name that a table is served under: one level of a path."""

RECORD_TABLES_PER_PAGE = 100
"""Registered tables that one answer shows to people."""

RECORD_SUBSCRIBERS_PER_PAGE = 100
"""Subscribers of a table that one answer shows to people."""

RECORD_FILTER_CHARACTERS_SHOWN = 300
"""Of the filter of a subscriber: it may have thousands of values."""

RECORDS_FILTERS_MAX = 16
"""Columns of one table that may be filtered by: each one is in every line of the log."""

CLUSTER_SECRET_BYTES = 32
"""Of what nodes prove with that they are of a cluster: nobody guesses it."""

CLUSTER_SECRET_OLD_S = 60
"""For so long the secret before is taken behind a renewal, where nobody says otherwise: nodes hear of the new
one within `access.revocation_ms`, or when their catalog is back."""

CLUSTER_SECRET_OLD_MS_MAX = 86_400_000
"""A day: for nodes whose catalog is away that long."""

DRAIN_PER_S = 200
"""Clients and groups that a node sends elsewhere in a second before a stop: what the others take in beside
their work, and 10,000 in less than a minute."""

DRAIN_PER_S_MAX = 10_000
"""More at once is as a stop without a drain."""

DRAIN_STEP_MS = 50
"""Between two steps of a drain: each takes its part of a second's."""

DRAIN_LOOK_MS = 200
"""Between two looks of `moor drain`: what a progress bar needs."""

CATALOG_ADDRESS_FILE_BYTES_MAX = 4 * KIB
"""Of a file with the address of a catalog, or of a database of records."""

RECORDS_RENEW_ROWS_MAX = 10_000
"""Rows that are set right in one transaction behind a restore, so that writers wait little."""

# --- records: the node's side ---------------------------------------------------------------------

RECORDS_PULSE_SHARE = 20
"""A look at the sequences of a database takes at most this part of the time: of a slow one, or one with a
thousand tables, they are looked at less often."""

RECORDS_IDLE_MS = 5_000
"""Time for which the feed of a table is kept without subscribers: a page that is loaded again finds it."""

RECORDS_LOOKS_APART_MS = 20
"""Between two looks for names of tables: whoever asks for thousands of them waits so long for each look."""

RECORDS_AWAY_MS_MAX = 2_000
"""Longest pause between two tries while a database does not answer."""

RECORDS_FRAME_BYTES = 64 * KIB
"""Bytes of rows in a WebSocket message, one row beyond it included: a browser parses it within a moment."""

RECORDS_PATIENCE_MS = 2_000
"""Time that those who share a scan wait for one of them who does not read; then it goes on without
that one."""

RECORDS_SNAPSHOT_MS_MAX = 300_000
"""Time for which a snapshot is kept for the questions of clients who sync by digest: Postgres keeps
old rows for it."""

RECORDS_QUESTION_MS_MAX = 5_000
"""Time for the next question of a client who syncs by digest; a page works out its ranges in far less."""

RECORDS_OFFER_MS_MAX = 60_000
"""Time for all its questions, while others wait for a place."""

RECORDS_ASKED_MAX = 64
"""Messages of a client that wait for the one before them; its socket is not read meanwhile."""

RECORDS_FETCH_ROWS_MAX = 100_000
"""Rows that one `fetch` brings: a client that lacks more of them asks again."""

RECORDS_FETCH_KEYS = 5_000
"""Of these, keys that one statement names: some hundred kilobytes of text, made within a slice or two."""

RECORDS_POLL_MS = 25_000
"""Time for which a long poll waits for a change: below the half minute of proxies."""

RECORDS_POLL_BYTES_MAX = 16 * MIB
"""Of the answer to a long poll: what is longer needs a WebSocket."""

RECORDS_POLLS_MAX = 1_000
"""Long polls that wait at once."""

RECORDS_KEY_LIFE_S = 86_400
"""Time for which a key signs cursors."""

RECORDS_KEYS_LOOK_MS = 60_000
"""Between two looks at the keys in the catalog."""

RECORDS_KEYS_AGAIN_MS = 1_000
"""Between two looks because a cursor was signed with a key that is not known here: another node may
have drawn it."""

# --- records: into a topic ------------------------------------------------------------------------

RECORDS_PUBLISH_ROWS_MAX = 1_000
"""Messages of a batch that is stored before it is published: a few milliseconds of the streams."""

RECORDS_PUBLISH_BYTES = 1 * MIB
"""Bytes at which such a batch ends, one message beyond it included; the catalog takes four times as many."""

RECORDS_PUBLISHED_TABLES_MAX = 1_000
"""Tables that one home publishes: each is looked at all the time."""

RECORDS_PUBLISH_KEEP_MS = 60_000
"""Between two places that are stored though nothing changed: far below the life of a log."""

RECORDS_PUBLISH_LOOK_MS = 5_000
"""Within it a node notices that a publication of its own was stopped elsewhere."""

RECORDS_PUBLISH_AGAIN_MS_MAX = 10_000
"""Longest pause between two tries of a publication that does not go on: a snapshot that is cut short is
published anew from its first row."""

MQTT_PACKET_BYTES_MAX = 320 * KIB
"""Largest packet of MQTT that is taken: the largest body of a message, its topic and its properties."""

MQTT_RETAINED_BYTES_MAX = 256 * MIB
"""Retained messages of a node together: they are in memory."""

MQTT_SESSION_EXPIRY_S_MAX = 30 * 86_400
"""Longest time for which a session of MQTT outlives its connection: a device that is away for a month."""

MQTT_KEEP_ALIVE_S_MAX = 3_600
"""Longest silence of a client of MQTT 5."""

MQTT_CLIENT_ID_BYTES_MAX = 200
"""Longest client id: with what stands before it, it is the name of a session."""

MQTT_FILTERS_MAX = 10_000
"""Filters of one client: 8,000 of a bridge at its start, and some more."""

MQTT_FILTERS_BYTES_MAX = 2 * MIB
"""Filters of one client together: they are written to the catalog whole when one is added."""

MQTT_RECEIVE_MAX = 1_024
"""PUBLISHes of a client with QoS above 0 that are not answered yet: what one commit takes from it."""

MQTT_IN_FLIGHT_MAX = 1_024
"""The same to a client, also if it takes more: what comes again after a lost connection."""

MQTT_ALIASES_MAX = 64
"""Topic aliases that a client may use: each is a topic kept in memory."""

MQTT_CONNECT_MS = 10_000
"""Within this time of its connection a client has said who it is."""

MQTT_REFERENCES_TOLD_MAX = 8
"""Other nodes that a client is told of: it tries one after the other."""

MQTT_SYSTEM_TOPICS_MS = 10_000
"""Time between two values of a topic of $SYS, as dashboards expect them."""

MQTT_TURN_BYTES = 32 * KIB
"""Of one client in one turn of the loop: some hundreds of messages, or thousands of the shortest packets."""

MQTT_PLACES_PASS_MS = 60_000
"""Time in which the place of each lasting session that gets nothing comes to the ends of the streams: after a
crash of its node that much is read once more for it."""

MQTT_WILL_LOOK_MS = 1_000
"""Time between two looks at wills that are due in the catalog."""

MQTT_WILL_CLAIM_MS = 30_000
"""For so long a will is one node's to publish: longer than a commit takes on a busy disk, and after a crash
in between it is published so much later."""

MQTT_GOODBYE_MS = 1_000
"""A client that does not read its DISCONNECT is cut by then."""

MQTT_CLIENTS_PER_PAGE_MAX = 1_000
"""Rows of one answer to a list of clients."""

MQTT_FILTERS_WAITING_MAX = 16_384
"""Filters of SUBSCRIBEs and UNSUBSCRIBEs of one client that wait, before it is read from no more: 8,000 at a
start, and as many again."""

MQTT_FILTERS_PER_BATCH = 1_024
"""Filters that are written to the catalog, and answered, together."""

MQTT_STARTS_LOOK_MS = 1_000
"""Time between two looks at filters that began later than the place of their client."""

MQTT_FILTERS_PER_SLICE = 64
"""Filters of one client that are done in one turn of the loop: about a millisecond."""

MQTT_WILLS_PER_LOOK_MAX = 1_000
"""Wills that one look at the catalog takes; more are there at the next."""

MQTT_DROP_CAUSES_MAX = 16
"""Kinds of a drop that a client's figures name: seven today."""

MQTT_CLIENT_FILTERS_SHOWN_MAX = 1_000
"""Filters of one client that an answer shows."""

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

HOME_MOVE_BLOCK_BYTES = 256 * KIB
"""Of a file that is copied what is hashed, compared and sent as one: a log that grew by a line costs one."""

HOME_MOVE_CALL_BYTES_MAX = 512 * KIB
"""Blocks of a home that one call brings to another node: half a frame."""

HOME_MOVE_PIECES_MAX = 1_024
"""Pieces of files in such a call, and names of files that are gone: many are of a hundred bytes."""

HOME_MOVE_PATH_LENGTH_MAX = 512
"""Of the path of a file below a data folder: the longest of ours has less than 200 characters."""

HOME_MOVE_BYTES_PER_S = 64 * MIB
"""So fast a home is copied while it serves: what two disks and a link have beside their work."""

HOME_MOVE_REST_BYTES_MAX = 8 * MIB
"""A pass over a home that copied no more than this is the last before it is closed: some 0.1 s of work."""

HOME_MOVE_PASSES_MAX = 8
"""Passes over a home before it is closed, however much it is written to: the first is all of it."""

HOME_MOVE_RETRY_MS = 1_000
"""Pause behind a step of a move that failed."""

HOME_MOVE_STANDSTILL_MS_MAX = 60_000
"""A home that was closed for its move is opened again if it has not been handed over by then."""

HOME_MOVE_STANDSTILLS_MAX = 3
"""Times that a home is closed for one move before the move is given up."""

HOME_MOVE_LOOK_MS = 1_000
"""Between two looks of a node for moves of its home in the catalog, and two notes of how far one is."""

HOME_MOVE_CALL_MS_MAX = 30_000
"""Another node has so long to write and sync what it was sent, or to hash it; then it is asked again."""

HOME_MOVE_SETTLE_MS_MAX = 3_600_000
"""And so long to hash all of a home's files for the first time: a terabyte at 300 MB/s."""

HOME_MOVE_STAMP_NS = 2_000_000_000
"""A file that was changed less than this before it was hashed is hashed again: the times of some file systems
are that coarse."""

HOME_MOVE_ID_BYTES = 16
"""Drawn for each move, so that a second one to the same node is told from the first."""

HOMES_PER_PAGE_MAX = 500
"""Homes in one answer to a list of them, each with up to HOME_ADDRESSES_MAX addresses."""

GUEST_NAME_CHARACTERS_MAX = 63
"""Of the name of a node that serves a home which was moved: what any node may be called."""

GUEST_CONNECTIONS_PART = 4
"""A home that was moved here is served with a quarter of the open files that its process may have."""

HOME_MOVE_COMMAND_MS = 200
"""Between two looks of `moor home move`: what a progress bar needs."""

HOME_MOVE_SILENT_MS_MAX = 60_000
"""`moor home move` waits so long for a node that answers; the move goes on without it."""

PURGED_PER_SLICE = 1_024
"""Messages of a queue that are purged in one turn of the loop: about a millisecond."""

SESSIONS_PER_PAGE_MAX = 1_000
"""Rows of one answer to a list of sessions."""

TOP_REACH_MS_MAX = 2_000
"""So long `moor top` waits for the figures of a node."""

FIGURES_BYTES_MAX = 4_194_304
"""What it takes of them: some 100 KiB today."""

BENCH_SECONDS_MAX = 60
"""So long a part of `moor bench` takes at most."""

BENCH_CLIENTS_MAX = 64
"""As many connections it opens at once."""

BENCH_BODY_BYTES_MAX = 65_536
"""Of a message of it."""

BENCH_BATCH = 64
"""Messages of a call of it: half of what a queue takes."""

BENCH_TTL_S = 60
"""What it has published is delivered to nobody behind that."""
