"""Identities, homes and their moves, and what nodes know of each other."""

from moorline.limits.units import KIB, MIB

CLUSTER_NODES_MAX = 4_096
"""Nodes that an answer about a cluster names, those that are long gone included."""

HOMES_SHOWN_MAX = 64
"""Homes of one node that such an answer names; it counts the others."""

HOMES_TOLD_MAX = 8
"""Homes that a certificate of several nodes names, told where it is refused: enough to see whose it is."""

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

HOMES_KEPT_MS = 2_000
"""For how long a node takes what it knows of the homes of others for true: half of NODE_GONE_MS."""

HOMES_AGAIN_MS = 100
"""Between two looks at the homes where somebody asks for one that is not known: it may be new, and whoever
invents ids is no reason to ask more often."""

NODE_GONE_MS = 5_000
"""Silence in the catalog after which other nodes do not try to reach a node any more."""

CLUSTER_LOOK_MS = 5_000
"""Time between two looks of a node at the figures of its cluster, for its metrics."""

CLOCK_QUESTION_MS_MAX = 1_000
"""For how long a question for the catalog's clock may take: its answer is wrong by half of that at most."""

PEER_RETRY_MS = 200
"""Pause before a link to another node is tried again."""

CLUSTER_ENTRIES_LOOK_MS = 1_000
"""Pause between two looks of a resolver at the nodes and homes of the catalog."""

CLUSTER_SECRET_BYTES = 32
"""Of what nodes prove with that they are of a cluster: nobody guesses it."""

CLUSTER_SECRET_OLD_S = 60
"""For so long the secret before is taken behind a renewal, where nobody says otherwise: nodes hear of the new
one within `access.revocation_ms`, or when their catalog is back."""

CLUSTER_SECRET_OLD_MS_MAX = 86_400_000
"""A day: for nodes whose catalog is away that long."""

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
