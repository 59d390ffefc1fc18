"""Records: tables, capture, clients, topics they feed."""

from moorline.limits.units import KIB, MIB

RECORDS_PER_CALL_MAX = 2_048
"""Messages that are published in one call: all of them are stored at once, some five milliseconds. Twice
what our client sends."""

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

RECORD_ROW_BYTES_MAX = 63 * MIB
"""Of one row, over the native protocol: with what goes before it, it is within RECORD_PARTS_BYTES_MAX."""

RECORD_SOCKET_ROW_BYTES_MAX = 14 * MIB
"""Of one row, over a WebSocket: with what waits before it, it is within WEBSOCKET_BUFFER_BYTES_MAX. A row
beyond it would cut the socket each time that it is sent."""

RECORD_ROW_RETURN_MS = 60_000
"""Time behind which a client comes back that is not served for the sake of one row."""

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

RECORD_KEY_CHARACTERS_SHOWN = 200
"""Of a key, in a text for people."""

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
"""Of the answer to a long poll: what is longer comes in pages, or needs a WebSocket."""

RECORDS_PAGE_BYTES = 4 * MIB
"""From there on no more rows are added to a page: with what changed since the page before it, and one row
more, it is an answer still."""

RECORDS_PAGE_ROWS_MAX = 50_000
"""Rows that are added to a page, and that Postgres is asked for at once."""

RECORDS_PAGE_KEY_CHARACTERS_MAX = 1_024
"""Of the key that a page ends with, which is in its cursor. A table with longer ones needs a WebSocket."""

RECORDS_POLLS_MAX = 1_000
"""Long polls that wait at once."""

RECORDS_KEY_LIFE_S = 86_400
"""Time for which a key signs cursors."""

RECORDS_KEYS_LOOK_MS = 60_000
"""Between two looks at the keys in the catalog."""

RECORDS_KEYS_AGAIN_MS = 1_000
"""Between two looks because a cursor was signed with a key that is not known here: another node may
have drawn it."""

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
