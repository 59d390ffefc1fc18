"""Room: access. Passwords as they are stored and checked: scrypt, in two threads at most.

What is stored is the hash with its salt and its cost (n, r, p), in columns of the catalog. So the cost can be
raised for new passwords while the old ones are checked with theirs.
"""

import asyncio
import contextlib
import hashlib
import hmac
import secrets
import unicodedata
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

import msgspec

from moorline.limits import (
    PASSWORD_BYTES_MAX,
    PASSWORD_THREADS,
    PASSWORDS_WAITING_MAX,
    SALT_BYTES,
    SCRYPT_BLOCK,
    SCRYPT_COST,
    SCRYPT_LANES,
    SCRYPT_WORK_MAX,
)

HASH_BYTES = 32
T = TypeVar("T")


class Cost(msgspec.Struct, frozen=True):
    """What one check takes: 128 * r * 2**cost bytes of memory, and p times as much work."""

    cost: int = SCRYPT_COST
    block: int = SCRYPT_BLOCK
    lanes: int = SCRYPT_LANES

    def hash(self, password: str, salt: bytes) -> bytes:
        """Slow, without the lock of Python's interpreter: for a thread."""
        memory_bytes = 128 * self.block * ((1 << self.cost) + self.lanes + 2)
        return hashlib.scrypt(
            as_bytes(password),
            salt=salt,
            n=1 << self.cost,
            r=self.block,
            p=self.lanes,
            maxmem=memory_bytes,
            dklen=HASH_BYTES,
        )

    @property
    def is_sound(self) -> bool:
        if not (1 <= self.cost <= 24 and self.block >= 1 and self.lanes >= 1):
            return False
        return (self.block * self.lanes) << self.cost <= SCRYPT_WORK_MAX


COST = Cost()


class StoredPassword(msgspec.Struct, frozen=True):
    cost: Cost
    salt: bytes
    hash: bytes

    def __repr__(self) -> str:
        return "StoredPassword(…)"

    @staticmethod
    def of(n: int, r: int, p: int, salt: bytes, found: bytes) -> "StoredPassword | None":
        """From columns of their own; None if they are damaged or cost more than we would pay."""
        cost = Cost(n.bit_length() - 1, r, p)
        is_whole = (
            n == 1 << max(cost.cost, 0) and len(salt) >= SALT_BYTES and len(found) == HASH_BYTES
        )
        return StoredPassword(cost, salt, found) if is_whole and cost.is_sound else None

    def matches(self, password: str) -> bool:
        """Slow: for a thread. It takes the same time whether they are the same or not."""
        return hmac.compare_digest(self.cost.hash(password, self.salt), self.hash)


def store_password(password: str, cost: Cost = COST) -> StoredPassword:
    """What is kept of a new password. Slow: for a thread."""
    salt = secrets.token_bytes(SALT_BYTES)
    return StoredPassword(cost, salt, cost.hash(password, salt))


def nobodys_password(cost: Cost = COST) -> StoredPassword:
    """One that nothing matches, and that takes as long to find out: for names that are nobody's."""
    return StoredPassword(cost, secrets.token_bytes(SALT_BYTES), secrets.token_bytes(HASH_BYTES))


def as_bytes(password: str) -> bytes:
    """One password however it was typed: keyboards compose letters in two ways (RFC 8265, OpaqueString)."""
    return unicodedata.normalize("NFC", password).encode()


def is_too_long(password: str) -> bool:
    return len(password) > PASSWORD_BYTES_MAX or len(as_bytes(password)) > PASSWORD_BYTES_MAX


class TooManyChecks(Exception):
    """As many passwords wait as may wait."""


class HashingThreads:
    """`async with HashingThreads() as threads`: a few threads, and two lanes in front of them.

    Whoever was here before goes first: strangers with wrong passwords, however many, keep out nobody who
    is known.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(PASSWORD_THREADS, thread_name_prefix="moor-password")
        self._running = 0
        self._known: deque[asyncio.Future[None]] = deque()
        self._strangers: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    async def run(self, work: Callable[[], T], *, is_known: bool) -> T:
        loop = asyncio.get_running_loop()
        if self._running < PASSWORD_THREADS:
            self._running += 1
        else:
            await self._turn(self._known if is_known else self._strangers)
        working = loop.run_in_executor(self._pool, work)
        working.add_done_callback(self._done)
        # Whoever asked may be gone before the thread is done, and nobody can stop that: the place is taken.
        return await asyncio.shield(working)

    async def _turn(self, lane: "deque[asyncio.Future[None]]") -> None:
        if len(lane) >= PASSWORDS_WAITING_MAX:
            raise TooManyChecks
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lane.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with contextlib.suppress(
                    ValueError
                ):  # whoever passed its thread on has taken it out
                    lane.remove(turn)
            else:
                self._pass_on()  # it was given the thread and cannot use it
            raise

    def _done(self, working: "asyncio.Future[T]") -> None:
        if not working.cancelled():
            working.exception()  # told to whoever still waits
        self._pass_on()

    def _pass_on(self) -> None:
        for lane in (self._known, self._strangers):
            while lane:
                turn = lane.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self._running -= 1
