"""Proofs, grants, tokens and logins."""

from moorline.limits.units import KIB
from moorline.limits.wire import FRAME_BYTES_MAX

HTTP_LOGIN_MS = 30_000
"""Time for a proof to be checked, or for a WebSocket without one to bring it in a message: passwords of
others may wait before it."""

PRINCIPAL_CHARACTERS_MAX = 255
"""Longest principal: what Postgres, Kerberos and file names of most systems take of a name."""

PROOF_MARK_BYTES = 32
"""What a resolver notes of the password or token by which the holder of a value's token was proven: the
versions of both in the catalog, and the first half of the token's hash."""

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

OUTGOING_PARTS_MAX = 8_192
"""Parts of an answer to a call of HTTP that a node makes, chunks and heads before the last one included: one
of 256 KiB in chunks of 64 bytes. Each costs some 30 microseconds, however small it is."""

OUTGOING_PARTS_PER_TURN = 32
"""Of them, as many as are looked at in one turn of the loop: a millisecond."""

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
