"""Room: net/http. The HTTP port: requests and WebSockets, for whichever room registers a route.

    messages.py      Request, Response, json_response, Static
    routes.py        Route, SocketRoute, Routes: what the rooms above register; who may come (Entry)
    peer.py          Peer: who is asking, with rights, quotas and an end
    logins.py        how a request becomes a peer: certificate, Authorization, the token among subprotocols
    head.py          which route a request means, and what is refused by its head alone
    intake.py        what has come and h11 has not taken: counted, and heads looked at as they were written
    turns.py         the line of those who have sent more than is heard at once
    connection.py    one connection: h11, keep-alive, bounds and times
    upgrade.py       the head of a request that becomes a WebSocket
    websocket.py     one WebSocket: wsproto, pings, slow readers
    server.py        HttpServer: the listening socket

A room registers before the port is opened:

    script = Static(content, "text/javascript")
    routes.add(
        Route("GET", "/records/script.js", script.answer, entry=Entry.OPEN),
        Route("GET", "/records/poll", poll, is_held=True),
        SocketRoute("/records/stream", Stream, subprotocols=("moorline.records",), entry=Entry.LATER),
    )

A handler of requests gets a `Request` and returns a `Response`, or an awaitable of one: a future that the
subject completes costs no task, a coroutine gets one. It is cancelled when the client goes. A factory of a
WebSocket gets the `Request` of its upgrade, and returns a `SocketHandler`, or a `Response` that refuses it.
The handler has five calls and no task:

    opened(socket)      now it may send
    message(data)       str for a text, bytes for a binary message, whole
    pause(), resume()   what waits for the peer is above WEBSOCKET_BUFFER_BYTES, or below again
    closed(code, text)  exactly once, and nothing behind it

One message for many receivers is made once: `frame = frame_text(payload)` (wire/websocket.py), then
`socket.write(frame)` for each. docs/protocols/http.md says what clients see.
"""
