"""Room: core. What the two ends of a link do about proofs of who the client is; core.link has the machines.

    client                              node
    MakeProof, then Hello       ->      CheckProof: accepted, continued or refused
                                <-      Challenge, as often as the mechanism wants and the bound lets it
    MakeProof, then Response    ->      CheckProof
                                <-      Welcome, only behind an acceptance

A proof may be a password, so it is never shown: stories and logs count its bytes.

To check and to make a proof are effects, since both may ask a catalog or a KDC and take their time. Between
the asking and `HearOn` the peer is not heard: whatever it says then is judged in the state that its proof
has led to.

By a mechanism of `WRAPPING` the two ends come to have keys. Then the last challenge is the switch (`Wrap`):
behind it all that is said and heard is wrapped with them, the response to it first.
"""

from typing import Final

from moorline.core.effects import Effect, Event, Say
from moorline.core.hidden_bytes import without_bytes

WRAPPING: Final = frozenset({"gssapi"})
"""Mechanisms whose links are wrapped: an acceptance without the switch before it is a mistake of ours."""


class ChallengeHeard(Event, frozen=True):
    proof: bytes

    __repr__ = without_bytes


class ResponseHeard(Event, frozen=True):
    proof: bytes

    __repr__ = without_bytes


class ProofAccepted(Event, frozen=True):
    """An answer to `CheckProof`: this is `principal`, or whoever its transport proved where that is empty."""

    principal: str = ""
    expires_ms: int | None = None
    """For how long from now on; None is for as long as the link lasts."""
    user_version: int = 0
    """Of a user: its version in the catalog when it was checked; under another one it is proven anew."""
    token: bytes = b""
    """The hash of the token that proved it; of a node the mark of the cluster's secret."""
    token_version: int = 0
    """Of the token, as of the user."""
    proven_name: str = ""
    """What the mechanism calls it, where rules have made the principal of that."""

    __repr__ = without_bytes


class ProofContinues(Event, frozen=True):
    """An answer to `CheckProof`: the peer must answer this first."""

    challenge: bytes
    wraps: bool = False
    """Whether it is the last one in clear."""

    __repr__ = without_bytes


class ProofRefused(Event, frozen=True):
    """An answer to `CheckProof`. The peer hears the text: it says nothing of who or what there is."""

    text: str
    code: str = "AUTH"
    """Of the goodbye: for programs that tell one cause from another."""


class ProofMade(Event, frozen=True):
    """An answer to `MakeProof`."""

    proof: bytes
    is_content: bool = True
    """Whether a welcome may follow. A mechanism by which the node proves itself too says no until it has."""
    wraps: bool = False
    """Whether this goes out wrapped already, and all that follows it both ways."""

    __repr__ = without_bytes


class ProofFailed(Event, frozen=True):
    """An answer to `MakeProof`: there is none, or the challenge is not one of the node that is meant."""

    text: str


class SayChallenge(Say, frozen=True):
    proof: bytes

    __repr__ = without_bytes


class SayResponse(Say, frozen=True):
    proof: bytes

    __repr__ = without_bytes


class CheckProof(Effect, frozen=True):
    """Ask the authenticator; until `HearOn` nothing more of the peer is heard, and little is kept."""

    mechanism: str
    proof: bytes

    __repr__ = without_bytes


class MakeProof(Effect, frozen=True):
    """Ask the credentials: for the first proof, or for the answer to a challenge. Until `HearOn` as above."""

    challenge: bytes | None

    __repr__ = without_bytes


class Wrap(Effect, frozen=True):
    """What was said before goes out as it is. Behind it nothing goes out, and nothing is heard, unwrapped."""


class HearOn(Effect, frozen=True):
    """What the peer says, and has said meanwhile, is heard again."""
