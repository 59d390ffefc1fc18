"""Records: what is captured in the tables' own database."""

from moorline.limits.units import KIB, MIB

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
