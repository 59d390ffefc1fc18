"""The resolver and values."""

from moorline.limits.units import KIB, MIB

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

RESOLVER_LOOKUPS_MAX = 2
"""Names of such addresses that are looked up at once. Each has one of the four threads that a process has for
that, as long as servers of names are silent: the others are for nodes, issuers and clients."""

RESOLVER_LOOKUPS_PER_PRINCIPAL_MAX = 1
"""Those of one principal, or of all strangers of one address."""

RESOLVER_DIALS_WAITING_MAX = 1_024
"""Logins whose addresses wait to be dialled; beyond it a login is refused."""

RESOLVER_DIALS_WAITING_PER_PRINCIPAL_MAX = 512
"""Those of one principal: half, so that others may wait beside it."""

ADDRESS_NOT_PROVEN_MS = 1_000
"""Least time from the dial of a login until it hears that its address is not proven, where
`resolver.proof_timeout_ms` is less: who looks for open ports gets one answer a second, the same for all."""

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

CLOSE_ANSWER_MS = 2_000
"""A publisher that leaves waits so long for a resolver to say that its paths are gone; longer for very many,
and never longer than for a write."""

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
