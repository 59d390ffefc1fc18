"""Room: core. The end of a link that says hello: a client, or a node that calls another.

It trusts nobody either: a mechanism by which the node proves itself too must be content before a welcome
counts.

Invariants, looked at by `check`, with Y3 and Y4 of core/link.py:

    Y1  at most one proof is made at a time, and only in a handshake
    Y2  a link is open only to a node that has proved what the mechanism asks of it
"""

from moorline.core.effects import Effect, Event, Say
from moorline.core.link import VERSION_MAX, VERSION_MIN, Link, LinkState, SayHello, WelcomeHeard
from moorline.core.proof import (
    WRAPPING,
    ChallengeHeard,
    HearOn,
    MakeProof,
    ProofFailed,
    ProofMade,
    SayResponse,
)
from moorline.limits import PROOF_ROUNDS_MAX


class ConnectingLink(Link):
    """The end that says hello: a client, or a node that calls another; with a mechanism it proves itself."""

    def __init__(
        self, name: str, *, hello_timeout_ms: int, keepalive_ms: int, mechanism: str = ""
    ) -> None:
        super().__init__(
            name,
            LinkState.AWAITING_WELCOME,
            hello_timeout_ms=hello_timeout_ms,
            keepalive_ms=keepalive_ms,
        )
        self.mechanism = mechanism
        self._is_making = False
        # Without a mechanism there is nothing that the node could still have to prove.
        self._is_content = True
        self._rounds = 0

    def greet(self) -> list[Effect]:
        if not self.mechanism:
            return [SayHello(VERSION_MIN, VERSION_MAX)]
        # The hello follows with the proof in it: one exchange less for all mechanisms of one round.
        return self._make(None)

    def greeted(self, event: Event, now_ms: int) -> list[Effect]:  # noqa: ARG002  (no clock needed)
        match event:
            case ProofMade(proof, is_content, wraps):
                assert self._is_making, f"nobody asked for {event}"
                # The newest word counts: the node proves itself in the last round, if at all.
                self._is_making, self._is_content = False, is_content
                if wraps:
                    return [self.wrap(), self._proof(proof), HearOn()]
                return [self._proof(proof), HearOn()]
            case ProofFailed(text):
                assert self._is_making, f"nobody asked for {event}"
                # Why it failed is for the user here, and not for whoever is at the other end.
                return self.end("AUTH", text, say=False)
            case ChallengeHeard(proof) if self.mechanism and self._is_listening:
                # Bounded here too: a node that asks on and on would get proof after proof of us.
                self._rounds += 1
                if self._rounds > PROOF_ROUNDS_MAX:
                    return self.end("AUTH", "the proof has too many rounds", say=True)
                return self._make(proof)
            case WelcomeHeard() if self._is_listening:
                return self._welcomed(event)
            case _:
                return self.misplaced(event)

    @property
    def _is_listening(self) -> bool:
        return self.state is LinkState.AWAITING_WELCOME and not self._is_making

    def _make(self, challenge: bytes | None) -> list[Effect]:
        self._is_making = True
        return [MakeProof(challenge)]

    def _proof(self, proof: bytes) -> Say:
        # A first proof is of no challenge, and so of round 0.
        if self._rounds:
            return SayResponse(proof)
        return SayHello(VERSION_MIN, VERSION_MAX, self.mechanism, proof)

    def _welcomed(self, event: WelcomeHeard) -> list[Effect]:
        # First who it is, then what it says: whoever has not proved to be the node that is meant may not even
        # choose a version.
        is_due = self.mechanism in WRAPPING and not self.is_wrapped
        if not self._is_content or is_due:
            return self.end("AUTH", "the node has not proved who it is", say=True)
        if not VERSION_MIN <= event.version <= VERSION_MAX:
            return self.end("VERSION", f"the node chose version {event.version}", say=True)
        # The node's keepalive rules: it is the one that cuts.
        self.keepalive_ms = event.keepalive_ms
        return self.establish(event.version)

    def invariants(self) -> None:
        self.check_rounds(self._rounds)
        self.check_wrapped()
        if self.state is LinkState.OPEN:
            assert not self._is_making, "Y1: a proof is made for a link that is open"
            assert self._is_content, "Y2: open, and the node has not proved who it is"
