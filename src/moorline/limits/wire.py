"""What a peer may send, and how long a link waits for it."""

from moorline.limits.units import KIB, MIB

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

NODES_PER_PAGE_MAX = 256
"""Nodes in one answer that tells all about them."""

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

HEADER_BYTES_MAX = 0xFFFF
"""A name or value of a header as it travels: what a stored frame has room for. What a node takes of all
headers together is TOPIC_HEADERS_BYTES_MAX, and more is refused by name."""

HEADERS_MAX = HEADER_BYTES_MAX // 3
"""Headers of a message: more do not fit these bytes, however short they are."""

PEM_BYTES_MAX = MIB
"""What is looked at of a certificate or key that cannot be used: bundles of authorities are smaller."""

STORY_EVENTS_MAX = 32
"""Last events that a machine keeps for the story in its error: enough to see how it came there."""

INBOX_EVENTS_MAX = 1_024
"""Events waiting for one machine: about one second of a busy session."""
