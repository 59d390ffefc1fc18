"""Several resolvers, several publishers, and a net between them that loses, repeats, delays and cuts.

A publisher here does what docs/design/resolver.md asks of one: it logs in, says its digest every half ttl,
and where the answer is another digest it sends what the resolver lacks and takes back what is too much.
"""

from random import Random
from typing import Any, NamedTuple

from moorline.core.directory.path import entry_id
from moorline.core.directory.registry import Claim, Registration, Registry
from moorline.core.sets.digest import Digest

TTL_MS = 1_000
DELAY_MS = 40
SECRET, SALT = b"s" * 32, b"t" * 16
PATHS = [f"/{letter}/{number}" for letter in "ab" for number in range(6)]


class Said(NamedTuple):
    """A message on its way, with the lives of both ends: what is for an earlier life is for nobody."""

    at_ms: int
    number: int
    kind: str
    resolver: int
    publisher: int
    lives: tuple[int, int]
    body: Any


class SimulatedPublisher:
    def __init__(self, number: int) -> None:
        self.number = number
        self.life = 0
        self.is_up = True
        self.died_ms: int | None = None
        self.paths: set[str] = set()
        self.logged_in: set[int] = set()
        """Resolvers, by what they answered last."""

    @property
    def claim(self) -> Claim:
        # Another life is another instance, at the same address.
        instance = f"{self.number}.{self.life}".encode().ljust(16, b".")
        return Claim(f"p{self.number}", instance, f"tcp://p{self.number}:1")

    def digest(self) -> Digest:
        return Digest.of(entry_id(path, 0) for path in self.paths)


class SimulatedResolver:
    def __init__(self, now_ms: int) -> None:
        self.life = 0
        self.begin(now_ms)

    def begin(self, now_ms: int, *, is_first: bool = True) -> None:
        ready_at_ms = now_ms if is_first else now_ms + TTL_MS // 2 + 1_000
        self.registry = Registry(ttl_ms=TTL_MS, ready_at_ms=ready_at_ms)
        self.logins: dict[int, Registration] = {}
        """By publisher: one connection each."""
        self.ticked_ms = now_ms


class DirectoryWorld:
    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.now_ms = 0
        self.number = 0
        self.steps = 0
        self.is_quiet = False
        self.resolvers = [SimulatedResolver(0) for _ in range(self.chance.randint(1, 3))]
        self.publishers = [SimulatedPublisher(n) for n in range(self.chance.randint(1, 4))]
        self.cut: set[tuple[str, int, int]] = set()
        """Directions that lose everything: ("in" or "out", resolver, publisher)."""
        self.agenda: list[Said] = []
        self.seen: dict[str, int] = {}
        for place in range(len(self.resolvers)):
            self._say_later("tick", place, 0, self.chance.randint(1, TTL_MS // 4))
            for publisher in self.publishers:
                self._say_later(
                    "beat", place, publisher.number, self.chance.randint(1, TTL_MS // 2)
                )

    # --- the net ----------------------------------------------------------------------------------

    def _say_later(
        self, kind: str, resolver: int, publisher: int, delay_ms: int, body: Any = None
    ) -> None:
        self.number += 1
        lives = (self.resolvers[resolver].life, self.publishers[publisher].life)
        at_ms = self.now_ms + delay_ms
        self.agenda.append(Said(at_ms, self.number, kind, resolver, publisher, lives, body))

    def _send(self, kind: str, resolver: int, publisher: int, body: Any = None) -> None:
        way = "in" if kind in ("open", "publish", "unpublish", "digest", "close") else "out"
        if not self.is_quiet:
            if (way, resolver, publisher) in self.cut or self.chance.random() < 0.1:
                self._count("lost")
                return
            if self.chance.random() < 0.1:
                self._count("repeated")
                self._say_later(kind, resolver, publisher, self.chance.randint(1, DELAY_MS), body)
        self._say_later(kind, resolver, publisher, self.chance.randint(1, DELAY_MS), body)

    def _count(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1

    # --- steps ------------------------------------------------------------------------------------

    def step(self) -> None:
        self.steps += 1
        if not self.is_quiet and self.chance.random() < 0.05:
            self._trouble()
        said = min(self.agenda)
        self.agenda.remove(said)
        self.now_ms = max(self.now_ms, said.at_ms)
        resolver, publisher = self.resolvers[said.resolver], self.publishers[said.publisher]
        if said.kind == "tick":
            self._tick(said.resolver)
        elif said.kind == "beat":
            self._beat(said.resolver, said.publisher)
        elif said.lives == (resolver.life, publisher.life):
            self._hear(said, resolver, publisher)

    def _tick(self, place: int) -> None:
        self._say_later("tick", place, 0, TTL_MS // 4)
        resolver = self.resolvers[place]
        resolver.registry.tick(self.now_ms)
        resolver.ticked_ms = self.now_ms
        self._purge_some(resolver.registry)
        resolver.registry.check(self.now_ms, resolver.ticked_ms)
        self._check_dead(resolver.registry)

    def _purge_some(self, registry: Registry) -> None:
        for _ in registry.purging():
            if self.chance.random() < 0.3:
                self._count("half purged")
                return

    def _beat(self, place: int, number: int) -> None:
        self._say_later("beat", place, number, TTL_MS // 2)
        publisher = self.publishers[number]
        if not publisher.is_up:
            return
        if place in publisher.logged_in:
            self._send("digest", place, number, publisher.digest())
        else:
            self._send("open", place, number, publisher.claim)

    def _hear(self, said: Said, resolver: SimulatedResolver, publisher: SimulatedPublisher) -> None:
        place, number, registry = said.resolver, said.publisher, resolver.registry
        if said.kind == "open":
            # The dial reaches the address only while somebody of that life listens there.
            if publisher.is_up and said.body.instance == publisher.claim.instance:
                resolver.logins[number] = registry.open(
                    registry.begin(), said.body, SECRET, SALT, self.now_ms
                )
                self._send("opened", place, number)
            return
        if said.kind in ("opened", "differs", "gone"):
            self._answered(said, publisher)
            return
        own = resolver.logins.get(number)
        if own is None or not own.is_found:
            self._send("gone", place, number)
        elif said.kind == "digest":
            registry.heard(own, self.now_ms)
            if own.digest() != said.body:
                self._send("differs", place, number, set(own.entries))
        elif said.kind == "publish":
            registry.publish(own, [(path, 0) for path in said.body], self.now_ms)
        elif said.kind == "unpublish":
            registry.unpublish(own, said.body, self.now_ms)
        elif said.kind == "close":
            registry.close(own)

    def _answered(self, said: Said, publisher: SimulatedPublisher) -> None:
        place, number = said.resolver, said.publisher
        if said.kind == "gone":
            publisher.logged_in.discard(place)
            self._send("open", place, number, publisher.claim)
            return
        publisher.logged_in.add(place)
        if said.kind == "opened":
            self._send("digest", place, number, publisher.digest())
            return
        self._count("repaired")
        if missing := sorted(publisher.paths - said.body):
            self._send("publish", place, number, missing)
        if surplus := sorted(said.body - publisher.paths):
            self._send("unpublish", place, number, surplus)

    # --- trouble ----------------------------------------------------------------------------------

    def _trouble(self) -> None:
        chance = self.chance
        publisher = chance.choice(self.publishers)
        place = chance.randrange(len(self.resolvers))
        what = chance.choice(
            ["paths", "paths", "paths", "kill", "start", "stop", "crash", "cut", "heal"]
        )
        if what == "paths" and publisher.is_up:
            changed = set(chance.sample(PATHS, chance.randint(1, 4)))
            publisher.paths ^= changed
            for at in publisher.logged_in:
                self._send("publish", at, publisher.number, sorted(changed & publisher.paths))
                self._send("unpublish", at, publisher.number, sorted(changed - publisher.paths))
        elif what in ("kill", "stop") and publisher.is_up:
            if what == "stop":
                for at in publisher.logged_in:
                    self._send("close", at, publisher.number)
            publisher.is_up = False
            publisher.died_ms = self.now_ms
        elif what == "start" and not publisher.is_up:
            publisher.is_up, publisher.died_ms = True, None
            publisher.life += 1
            publisher.logged_in = set()
        elif what == "crash":
            resolver = self.resolvers[place]
            resolver.life += 1
            resolver.begin(self.now_ms, is_first=False)
        elif what == "cut":
            self.cut.add((chance.choice(["in", "out"]), place, publisher.number))
        elif what == "heal":
            self.cut.clear()
        self._count(what)

    # --- what must hold ---------------------------------------------------------------------------

    def _check_dead(self, registry: Registry) -> None:
        for path in PATHS:
            for one in registry.find(path)[0]:
                number = int(one.claim.principal[1:])
                publisher = self.publishers[number]
                if publisher.is_up and one.claim.instance != publisher.claim.instance:
                    continue  # an earlier life: it goes with the ttl, or at the next login
                if publisher.died_ms is not None and one.claim.instance == publisher.claim.instance:
                    late_ms = self.now_ms - publisher.died_ms
                    assert late_ms <= 2 * TTL_MS, f"{path} is found {late_ms} ms after its end"

    def check_found(self) -> None:
        """Behind quiet: every resolver has exactly what lives."""
        for place, resolver in enumerate(self.resolvers):
            for path in PATHS:
                found = {one.claim.principal for one in resolver.registry.find(path)[0]}
                wanted = {
                    f"p{one.number}" for one in self.publishers if one.is_up and path in one.paths
                }
                assert found == wanted, (
                    f"resolver {place} has {path} of {found}, and not of {wanted}"
                )
