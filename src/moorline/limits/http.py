"""HTTP, WebSocket and the pages of a node."""

from moorline.limits.units import KIB, MIB

HTTP_CONNECTIONS_MAX = 64
"""Connections to the HTTP port at once that ask and are answered: probes, scrapers and browsers.
WebSockets and long polls are not among them: they take places of the node's connections."""

HTTP_BACKLOG = 1_024
"""Connections that the kernel holds before they are looked at: some 0.2 s of looking, for which a probe may
wait. Who finds no room there is tried again by the kernel, up to a minute later: with 128, of 10,000 pages
that were cut together 600 were not back after two minutes."""

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

WEBSOCKET_STRANGERS_DIVISOR = 8
"""This part of the node's connections may be WebSockets that have not proven who they are. Behind that the
oldest of them makes room: a page proves itself within milliseconds, and thousands may do so at once."""

WEBSOCKET_STRANGER_FRAMES_MAX = WEBSOCKET_FRAGMENTS_MAX
"""Frames of whoever has not brought its proof yet: one message, in as many fragments as it may have."""
