"""Room: net. Acceptors: listening sockets, and a door (core.door) that says who of those who knock comes in.

The sockets are our own, and not a server's of the loop: that one accepts whoever comes, and ends where the
system has no descriptor left.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final, assert_never

from moorline.config.addresses import Address
from moorline.core.door import Admit, Cut, Door, Drop, Refuse
from moorline.errors import AddressTaken, ConfigError, StartError
from moorline.limits import (
    ACCEPT_BREATH_MS,
    ACCEPT_NOTE_MS,
    ACCEPT_NOTES_MAX,
    ACCEPT_PAUSE_MS,
    ACCEPTS_PER_TURN,
    LISTEN_BACKLOG,
)
from moorline.net.alerts import HANDSHAKING
from moorline.net.clock import monotonic_ms
from moorline.net.tls import why_refused_here

log = logging.getLogger("moorline.net")

_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Visit:
    """One connection, from its knock to its end."""

    def __init__(self, door: Door, number: int, *, is_refused: bool) -> None:
        self.is_refused = is_refused
        """It is let in only to be told that there is no room."""
        self.cut: Callable[[], object] = lambda: None
        """Closes it at once; whoever serves it may replace this."""
        self._door = door
        self._number = number

    def heard(self) -> None:
        """The peer has said what it wants."""
        self._door.heard(self._number)

    def quiet(self) -> None:
        """It has its answer: if it asks no more, another may have its place."""
        self._door.quiet(self._number, monotonic_ms())

    def settle(self, other: Door) -> bool:
        """Whether it can stay for long, at the expense of the other door."""
        return self._door.settle(self._number, other)


Serve = Callable[[socket.socket, Visit], Awaitable["asyncio.Future[None] | None"]]
"""Serves a connection: until its end, or until what it returns is done."""


class Acceptor:
    """The listening sockets of one door, at however many addresses.

    A door has one acceptor: it cuts visitors by their number, whichever address they came to.
    """

    def __init__(
        self,
        door: Door,
        backlog: int = LISTEN_BACKLOG,
        *,
        dropped: Callable[[socket.socket], None] = lambda _: None,
    ) -> None:
        """`dropped` hears of those that are closed without a word, while their socket is open."""
        self.accepted = 0
        self._dropped = dropped
        self._door = door
        self._backlog = backlog
        self._loop = asyncio.get_running_loop()
        self._sockets: dict[socket.socket, Serve] = {}
        self._visits: dict[int, Visit] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = count(1)
        self._noted: dict[str, tuple[int, int]] = {}
        """By text: when it was last in the log, and how often it would have been since."""

    async def open(self, address: Address, serve: Serve) -> list[Address]:
        """Listens there too; returns the addresses in force (port 0 has become a real one)."""
        try:
            opened = await _listening(address, self._backlog)
        except OSError as error:
            raise cannot_listen(address, error) from error
        for listening in opened:
            self._sockets[listening] = serve
            self._loop.add_reader(listening.fileno(), self._accept, listening)
        names = [listening.getsockname() for listening in opened]
        return [Address(address.scheme, name[0], name[1]) for name in names]

    def close(self) -> None:
        """Takes no more; those that are in stay."""
        for listening in self._sockets:
            if listening.fileno() >= 0:
                self._loop.remove_reader(listening.fileno())
                listening.close()
        self._sockets = {}

    async def cut_all(self) -> None:
        """Ends what is left, and waits until nothing of it runs."""
        for visit in list(self._visits.values()):
            visit.cut()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- who comes --------------------------------------------------------------------------------

    def _accept(self, listening: socket.socket) -> None:
        turned_away = 0
        for _ in range(ACCEPTS_PER_TURN):
            now_ms = monotonic_ms()
            if not self._door.is_ready(now_ms):
                for cut in self._door.make_room(now_ms):
                    self._visits[cut.visitor].cut()
                self._pause(listening, ACCEPT_BREATH_MS)
                return
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _NO_ROOM:
                    # It has no descriptor for us: what knocks waits, and we do not ask all the time.
                    self.note(f"connections wait: {error.strerror}")
                    self._pause(listening, ACCEPT_PAUSE_MS)
                    return
                continue  # it went while it waited
            accepted.setblocking(False)
            turned_away += self._knocked(accepted, self._sockets[listening], now_ms)
            if turned_away > self._door.turned_away_max // 2:
                self._pause(listening, ACCEPT_BREATH_MS)
                return

    def _knocked(self, accepted: socket.socket, serve: Serve, now_ms: int) -> bool:
        """Whether somebody was turned away: it, or another for its sake."""
        visitor = next(self._numbers)
        verdicts = self._door.knock(visitor, accepted.fileno(), now_ms)
        for verdict in verdicts:
            match verdict:
                case Admit():
                    self.accepted += 1
                    self._begin(accepted, serve, visitor, is_refused=False)
                case Refuse():
                    self.note("more connections than this node takes: they are refused")
                    self._begin(accepted, serve, visitor, is_refused=True)
                case Drop():
                    self.note("hardly a descriptor is left: connections are closed")
                    self._dropped(accepted)
                    accepted.close()
                case Cut(oldest):
                    self.note("connections that said nothing are closed: others want their places")
                    self._visits[oldest].cut()
                case _:
                    assert_never(verdict)
        return verdicts != [Admit(visitor)]

    def _begin(
        self, accepted: socket.socket, serve: Serve, visitor: int, *, is_refused: bool
    ) -> None:
        with contextlib.suppress(OSError):  # it may be gone already
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        visit = self._visits[visitor] = Visit(self._door, visitor, is_refused=is_refused)
        task = self._loop.create_task(self._served(accepted, serve, visitor, visit))
        visit.cut = task.cancel
        self._tasks.add(task)

        def done(_: "asyncio.Task[None]") -> None:
            self._tasks.discard(task)
            if task.cancelled():
                # It takes that as an end once it runs: so it was cut before its first step, and did nothing.
                accepted.close()
                self._left(visitor)

        task.add_done_callback(done)

    async def _served(
        self, accepted: socket.socket, serve: Serve, visitor: int, visit: Visit
    ) -> None:
        gone: asyncio.Future[None] | None = None
        HANDSHAKING.set(accepted)  # of this task alone
        try:
            gone = await serve(accepted, visit)
        except ssl.SSLCertVerificationError as error:
            self.note(f"a client's certificate is refused: {why_refused_here(error)}")
            accepted.close()
        except (OSError, asyncio.CancelledError):
            accepted.close()
        except Exception:
            log.exception("a connection failed by a mistake of ours")
            accepted.close()
        finally:
            if gone is None or gone.done():
                self._left(visitor)
            else:
                gone.add_done_callback(lambda _: self._left(visitor))

    def _left(self, visitor: int) -> None:
        del self._visits[visitor]
        self._door.left(visitor)

    # --- when there is no room --------------------------------------------------------------------

    def _pause(self, listening: socket.socket, pause_ms: int) -> None:
        """What knocks waits in the backlog."""
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(pause_ms / 1_000, self._go_on, listening)

    def _go_on(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def note(self, text: str) -> None:
        """A line of each kind now and then, however many come."""
        now_ms = monotonic_ms()
        if len(self._noted) >= ACCEPT_NOTES_MAX:
            self._noted.clear()  # most texts are ours or OpenSSL's; some have a name of a certificate in them
        noted_ms, unnoted = self._noted.get(text, (None, 0))
        if noted_ms is None or now_ms - noted_ms >= ACCEPT_NOTE_MS:
            log.warning(text, extra={"times": unnoted + 1, "places": self._door.places})
            self._noted[text] = now_ms, 0
        else:
            self._noted[text] = noted_ms, unnoted + 1


async def _listening(address: Address, backlog: int) -> list[socket.socket]:
    """A socket for each address that the name means."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    made: list[socket.socket] = []
    try:
        for family, kind, protocol, _, place in dict.fromkeys(found):
            listening = socket.socket(family, kind, protocol)
            made.append(listening)
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(place)
            listening.listen(backlog)
    except OSError:
        for listening in made:
            listening.close()
        raise
    return made


def cannot_listen(address: Address, error: OSError) -> Exception:
    """The error of ours for an address that the system refuses."""
    if error.errno == errno.EADDRINUSE:
        free = str(Address(address.scheme, address.host, 0))
        flag = f"--listen {free}"
        if address.scheme in {"http", "https"}:
            flag = f"--http off, or --http {free.removeprefix('http://')}"
        return AddressTaken(
            f"{address} is taken by another program: stop it, or give {flag} for any free port"
        )
    if error.errno == errno.EACCES:
        return StartError(f"{address}: not permitted: choose a port above 1023")
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return ConfigError(f"{address} is not an address of this machine: {error.strerror}")
    return StartError(f"{address}: cannot listen: {error}")
