"""A resolver of the simulation of the whole: the real registry, behind a shell as a node has it."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from tests.core.directory.made_tokens import token_of
from tests.core.values.whole_net import Network, Process, Reply

from moorline.core.access.right import SUBSCRIBE
from moorline.core.directory.registry import Claim, Registration, Registry
from moorline.core.directory.token import Claim as TokenClaim
from moorline.core.sets.digest import Digest

TTL_MS = 30_000
TOKEN_LIFE_MS = 60_000
RIGHTS_MS = 1_000
"""Within that a resolver knows of a change of rights."""
NOT_FOUND, NOT_READY, DENIED = "NOT_FOUND", "NOT_READY", "DENIED"


class Issued(NamedTuple):
    """A token that a resolver has given out, and by which secret."""

    claim: TokenClaim
    token: bytes
    secret: bytes


class Granted(NamedTuple):
    """One publisher of a path, as an answer has it."""

    publisher: str
    instance: bytes
    priority: int
    issued: Issued


class Opened(NamedTuple):
    resolver: bytes
    secret: bytes
    digest: Digest


class Ledger:
    """What is true, whoever knows it: rights, tokens, and who lives."""

    def __init__(self) -> None:
        self.issued: list[Issued] = []
        self.denied: dict[tuple[str, str], int] = {}
        """Principal and path, since when."""
        self.died_ms: dict[bytes, int] = {}
        """Instances that are gone."""


class SimulatedResolver(Process):
    def __init__(self, net: Network, name: str, ledger: Ledger) -> None:
        super().__init__(net, name)
        self.ledger = ledger
        self.begin(is_first=True)

    def begin(self, *, is_first: bool = False) -> None:
        self.is_up = True
        now_ms = self.net.now_ms
        self.id = f"{self.name}.{self.life}".encode().ljust(16, b".")
        ready_at_ms = now_ms if is_first else now_ms + TTL_MS // 2 + 1_000
        self.registry = Registry(ttl_ms=TTL_MS, ready_at_ms=ready_at_ms)
        self.connections: dict[tuple[Any, ...], tuple[Registration, Process]] = {}
        self.denied = set(self.ledger.denied)
        self.ticked_ms = now_ms
        self._secrets = 0
        self._begun: set[tuple[Any, ...]] = set()
        self.later(self.registry.tick_ms, self._tick)

    def _tick(self) -> None:
        now_ms = self.net.now_ms
        late_ms = now_ms - self.ticked_ms - self.registry.tick_ms
        self.ticked_ms = now_ms
        if late_ms > TTL_MS // 2:
            self.registry.slept(late_ms, now_ms)
        self.registry.tick(now_ms)
        for _ in self.registry.purging():
            if self.net.chance.random() < 0.3:
                break
        self.registry.check(now_ms, now_ms)
        self._check_dead()
        self.later(self.registry.tick_ms, self._tick)

    def _check_dead(self) -> None:
        """Nothing dead is found after 2 × ttl, beside the time for which the resolver stood still itself."""
        for one in self.registry:
            died_ms = self.ledger.died_ms.get(one.claim.instance)
            if died_ms is not None:
                late_ms = self.net.now_ms - died_ms - self.stood_ms
                assert late_ms <= 2 * TTL_MS, f"{self.name} has {one.claim} {late_ms} ms behind it"

    # --- publishers -------------------------------------------------------------------------------

    def log_in(
        self,
        reply: Reply,
        publisher: Process,
        claim: Claim,
        key: bytes,
        connection: tuple[Any, ...],
    ) -> None:
        if connection in self._begun:
            return  # a connection carries nothing twice, and a second secret would be known to nobody
        self._begun.add(connection)
        number = self.registry.begin()
        dialled: Any = publisher

        def asked() -> None:
            if key in dialled.keys:
                self.net.send(publisher, self, proven)

        def proven() -> None:
            if connection in self.connections:
                return
            if self.registry.is_overtaken(number, claim):
                reply(None)
                return
            self._secrets += 1
            secret = self.id + self._secrets.to_bytes(16, "big")
            one = self.registry.open(number, claim, secret, b"t" * 16, self.net.now_ms)
            self.connections[connection] = (one, publisher)
            reply(Opened(self.id, secret, one.digest()))

        self.net.send(self, publisher, asked)

    def _mine(self, connection: tuple[Any, ...]) -> Registration | None:
        found = self.connections.get(connection)
        if found is None or not found[0].is_found:
            return None
        self.registry.heard(found[0], self.net.now_ms)
        return found[0]

    def change(
        self, reply: Reply, connection: tuple[Any, ...], changes: Mapping[str, int | None]
    ) -> None:
        mine = self._mine(connection)
        if mine is None:
            reply(None)
            return
        now_ms = self.net.now_ms
        gone = [path for path, flags in changes.items() if flags is None]
        come = [(path, flags) for path, flags in changes.items() if flags is not None]
        self.registry.unpublish(mine, gone, now_ms)
        self.registry.publish(mine, come, now_ms)
        reply(mine.digest())

    def entries(self, reply: Reply, connection: tuple[Any, ...]) -> None:
        """What a comparison finds out, in one answer; also the digest, of a heartbeat."""
        mine = self._mine(connection)
        reply(None if mine is None else (mine.digest(), dict(mine.entries.items())))

    def judge(
        self, reply: Reply, connection: tuple[Any, ...], claims: Sequence[tuple[str, str]]
    ) -> None:
        """Whether these principals may stay at these paths; None of what it does not know."""
        mine = self._mine(connection)
        if mine is None:
            reply(None)
            return
        reply(
            {
                (principal, path): (principal, path) not in self.denied
                for principal, path in claims
                if path in mine.entries
            }
        )

    def learn_rights(self) -> None:
        """Its copy of the rows, and who has to hear of that."""
        self.denied = set(self.ledger.denied)
        for registration, publisher in list(self.connections.values()):
            told: Any = publisher
            if registration.is_found:
                self.net.send(self, publisher, partial(told.judge, is_all=True))

    # --- readers ----------------------------------------------------------------------------------

    def resolve(self, reply: Reply, principal: str, paths: Sequence[str]) -> None:
        now_ms = self.net.now_ms
        answer: dict[str, list[Granted] | str] = {}
        for path in paths:
            found, _ = self.registry.find(path)
            if (principal, path) in self.denied:
                answer[path] = DENIED
            elif not found:
                answer[path] = NOT_FOUND if self.registry.is_ready(now_ms) else NOT_READY
            else:
                answer[path] = [self._granted(one, principal, path) for one in found]
        reply(answer)

    def _granted(self, one: Registration, principal: str, path: str) -> Granted:
        expires_s = (self.net.now_ms + TOKEN_LIFE_MS) // 1_000
        claim = TokenClaim(
            self.id, one.claim.instance, principal, "password", False, expires_s, path, SUBSCRIBE
        )
        issued = Issued(claim, token_of(one.secret, claim), one.secret)
        self.ledger.issued.append(issued)
        del self.ledger.issued[:-200]
        return Granted(one.claim.address, one.claim.instance, one.claim.priority, issued)
