"""Two ends of one link, from one seed: a slow authenticator, a hostile client, garbage, cuts at any step.

TCP loses nothing and repeats nothing, but it may end between any two messages, and either end may say what
it likes. The shells here hold what they hear while a proof is under way, as `net.connection` does.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from moorline.core.accepting_link import AcceptingLink
from moorline.core.connecting_link import ConnectingLink
from moorline.core.effects import CancelTimer, Effect, Event, SetTimer, TimerFired
from moorline.core.link import (
    BadBytes,
    CheckSilence,
    EndLink,
    Established,
    GoodbyeHeard,
    HelloHeard,
    Link,
    LinkLost,
    LinkState,
    Opened,
    SayHello,
    SayPing,
    SayWelcome,
    SilentFor,
    WelcomeHeard,
)
from moorline.core.proof import (
    ChallengeHeard,
    CheckProof,
    HearOn,
    MakeProof,
    ProofAccepted,
    ProofContinues,
    ProofFailed,
    ProofMade,
    ProofRefused,
    ResponseHeard,
    SayChallenge,
    SayResponse,
    Wrap,
)

HELLO_MS, KEEPALIVE_MS = 1_000, 1_000_000
CALL = "a call"
"""What is not about the link: it may pass only while that is open."""

WRAPS = "gssapi"
"""A mechanism behind which everything is wrapped."""

LAST = b"last"
"""The challenge behind which the node wraps."""

END_MS = 20_000
"""By then every handshake is over, whatever its authenticator did."""


class World:
    """Time, what is on its way, and the two ends."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.now_ms = 0
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        rounds = self.chance.choice([0, 0, 1, 2, 3, 8, 9, 12])
        mechanism = self.chance.choice(["", "a", "a", WRAPS, WRAPS, "b"])
        self.node = NodeEnd(self, rounds)
        self.client = ClientEnd(self, mechanism)
        self.node.other, self.client.other = self.client, self.node
        self.cut_ms = self.chance.choice([None, None, self.chance.randint(0, 1_500)])

    def run(self) -> None:
        self.at(0, self.client.opened)
        self.at(self.chance.randint(0, 5), self.node.opened)
        for _ in range(self.chance.choice([0, 0, 1, 3])):
            self.at(self.chance.randint(0, 1_200), self.client.misbehave)
        if self.cut_ms is not None:
            for end in (self.node, self.client):
                self.at(self.cut_ms + self.chance.randint(0, 50), end.lose)
        while self._agenda and self._agenda[0][0] <= END_MS:
            self.now_ms, _, act = heapq.heappop(self._agenda)
            act()
        for end in (self.node, self.client):
            assert end.link.state in (LinkState.OPEN, LinkState.CLOSED), f"{end.link.story()}"

    def at(self, after_ms: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (self.now_ms + after_ms, next(self._numbers), act))

    def patience_ms(self) -> int:
        """How long somebody thinks: mostly short, sometimes longer than a handshake may last."""
        return self.chance.choice([0, 1, 10, 100, 100, 3 * HELLO_MS])


class End:
    """The shell of one machine."""

    other: "End"

    def __init__(self, world: World, link: Link) -> None:
        self.world = world
        self.link = link
        self.handled = 0
        """Calls that have passed."""
        self._is_proving = False
        self._held: deque[Any] = deque()
        self.wraps_behind: int | None = None
        """How many words it had said when it began to wrap; the next is the first record."""
        self._told = 0
        self._records_heard = 0
        self._timers: dict[str, int] = {}
        self._last_due_ms = 0

    def opened(self) -> None:
        self.post(Opened())

    def lose(self) -> None:
        self.post(LinkLost())

    def post(self, event: Event) -> None:
        effects = self.link.handle(event, self.world.now_ms)
        self.link.check()
        for effect in effects:
            self.perform(effect)

    def arrive(self, word: Any, record: int | None) -> None:
        """`record` is its number if it is wrapped, by the keys of the other end; in clear it has none."""
        if self._is_proving:
            self._held.append((word, record))
            return
        if self.wraps_behind is None:
            if record is None:
                self.hear(word)
            else:
                self.post(BadBytes("MALFORMED", "this is no frame"))
        elif record == self._records_heard:
            self._records_heard += 1
            self.hear(word)
        else:
            self.post(BadBytes("TAMPERED", "not the next record"))

    def hear(self, word: Any) -> None:
        """What arrives: an event of the link, or a call."""
        if self.link.mechanism == WRAPS and self.link.state is LinkState.OPEN:
            assert self.wraps_behind is not None, "a link that should be wrapped is open in clear"
        if word is not CALL:
            self.post(word)
        elif self.link.state is LinkState.OPEN:
            self.pass_call()
        else:
            self.post(BadBytes("MALFORMED", "the first message must be a hello"))

    def pass_call(self) -> None:
        self.handled += 1

    def tell(self, word: Any) -> None:
        """In order, as TCP delivers; nothing arrives behind a cut."""
        record = None if self.wraps_behind is None else self._told - self.wraps_behind
        self._told += 1
        self.send(word, record)

    def send(self, word: Any, record: int | None) -> None:
        world = self.world
        due_ms = max(self._last_due_ms, world.now_ms + world.chance.choice([0, 1, 5, 200]))
        self._last_due_ms = due_ms
        if world.cut_ms is None or due_ms < world.cut_ms:
            world.at(due_ms - world.now_ms, lambda: self.other.arrive(word, record))

    def answer(self, event: Event) -> None:
        """What was asked about a proof; also to a link that is over, which does not care."""
        if self.link.state is not LinkState.CLOSED:
            assert self._is_proving, "an answer to nothing"
        self.post(event)

    def ask(self, event: Event) -> None:
        assert not self._is_proving, "one at a time"
        self._is_proving = True
        self.world.at(self.world.patience_ms(), lambda: self.answer(event))

    def perform(self, effect: Effect) -> None:
        match effect:
            case SetTimer(name, after_ms):
                due_ms = self._timers[name] = self.world.now_ms + after_ms
                self.world.at(after_ms, lambda: self._fire(name, due_ms))
            case CancelTimer(name):
                self._timers.pop(name, None)
            case Wrap():
                assert self.wraps_behind is None, "the switch is once"
                self.wraps_behind = self._told
            case HearOn():
                self.world.at(0, self._hear_on)
            case CheckSilence():
                self.post(SilentFor(0))
            case SayPing():
                pass
            case EndLink(code, text, say):
                if say:
                    self.tell(GoodbyeHeard(code, text))
            case _:
                raise AssertionError(f"nobody performs {effect}")

    def _fire(self, name: str, due_ms: int) -> None:
        if self._timers.get(name) == due_ms:
            del self._timers[name]
            self.post(TimerFired(name))

    def _hear_on(self) -> None:
        self._is_proving = False
        while self._held and not self._is_proving:
            self.arrive(*self._held.popleft())


class NodeEnd(End):
    def __init__(self, world: World, rounds: int) -> None:
        times = {"hello_timeout_ms": HELLO_MS, "keepalive_ms": KEEPALIVE_MS}
        super().__init__(world, AcceptingLink("node", mechanisms=("a", WRAPS), **times))
        self.is_accepted = False
        self.expires_at_ms: int | None = None
        self.opened_ms: int | None = None
        self._rounds_left = rounds

    def pass_call(self) -> None:
        super().pass_call()
        assert self.is_accepted, "a call before anybody was accepted"
        if self.expires_at_ms is not None:
            assert self.world.now_ms <= self.expires_at_ms, "a call behind the end of its proof"

    def perform(self, effect: Effect) -> None:
        match effect:
            case CheckProof(mechanism, _):
                assert mechanism in ("", "a", WRAPS), "a mechanism that this end has not named"
                self.ask(self._verdict(mechanism))
            case SayChallenge(proof):
                self.tell(ChallengeHeard(proof))
            case SayWelcome(version, keepalive_ms):
                assert self.is_accepted, "a welcome before anybody was accepted"
                self.tell(WelcomeHeard(version, keepalive_ms))
            case Established():
                assert self.is_accepted
                assert self.opened_ms is None
                self.opened_ms = self.world.now_ms
                assert self.opened_ms <= HELLO_MS + 5, "a handshake longer than its time"
            case _:
                super().perform(effect)

    def _verdict(self, mechanism: str) -> Event:
        chance = self.world.chance
        if mechanism == WRAPS and self.wraps_behind is None and self._rounds_left <= 1:
            self._rounds_left = 0
            return ProofContinues(LAST, wraps=True)
        if mechanism and self._rounds_left:
            self._rounds_left -= 1
            return ProofContinues(b"?")
        if chance.random() < 0.3:
            return ProofRefused("no")
        return ProofAccepted("olga", chance.choice([None, None, 0, 300, 5_000]))

    def answer(self, event: Event) -> None:
        if isinstance(event, ProofAccepted) and self.link.state is LinkState.AUTHENTICATING:
            self.is_accepted = event.expires_ms != 0
            if event.expires_ms:
                self.expires_at_ms = self.world.now_ms + event.expires_ms
        super().answer(event)


class ClientEnd(End):
    """One that calls as soon as it is welcome, and another in it that says what it should not."""

    def __init__(self, world: World, mechanism: str) -> None:
        times = {"hello_timeout_ms": 2 * HELLO_MS, "keepalive_ms": KEEPALIVE_MS}
        super().__init__(world, ConnectingLink("client", mechanism=mechanism, **times))
        self.misdeeds: list[Any] = []
        self.forged = 0

    def perform(self, effect: Effect) -> None:
        match effect:
            case MakeProof(challenge):
                fails = self.world.chance.random() < 0.1
                wraps = self.link.mechanism == WRAPS and challenge == LAST
                is_content = self.link.mechanism != WRAPS or wraps or self.link.is_wrapped
                made = ProofMade(b"!", is_content, wraps)
                self.ask(ProofFailed("no") if fails else made)
            case SayHello(version_min, version_max, mechanism, proof):
                self.tell(HelloHeard(version_min, version_max, mechanism, proof))
                if self.world.chance.random() < 0.2:
                    self.tell(CALL)  # it does not wait for its welcome
            case SayResponse(proof):
                self.tell(ResponseHeard(proof))
            case Established():
                for _ in range(3):
                    self.tell(CALL)
                self.world.at(1_000, lambda: self.tell(CALL))
            case _:
                super().perform(effect)

    def misbehave(self) -> None:
        """Says anything, at any time, as somebody would who has a socket and no scruples."""
        word: Any = self.world.chance.choice(
            [
                CALL,
                HelloHeard(1, 1),
                HelloHeard(1, 1, "a", b"!"),
                HelloHeard(1, 1, "b", b"!"),
                HelloHeard(1, 1, WRAPS, b"!"),
                HelloHeard(7, 9),
                ResponseHeard(b"!"),
                GoodbyeHeard("DONE", ""),
                BadBytes("MALFORMED", "garbage"),
                BadBytes("FRAME_TOO_LARGE", "garbage"),
            ]
        )
        self.misdeeds.append(word)
        # Wrapped by nobody, in clear, or a record of before: whoever stands between has no keys.
        number = self.world.chance.choice([None, None, 0, 7])
        if self.wraps_behind is None and number is None:
            self.tell(word)
        else:
            self.forged += 1
            self.send(word, number if number != 0 else -1)
