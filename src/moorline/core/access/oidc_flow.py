"""Room: core/access. One login by an issuer, from its begin to the code that a browser brings back.

    begun = flows.begin(redirect, now_s, random)      what the page keeps, and what the issuer is told
    checked = flows.check(answer, redirect, now_s)    whether that answer is of a login that began here

Nothing is remembered of a login that began: whoever can reach the page can begin as many as it likes. What
the page keeps (`flow`) is made of chance and the time; state, nonce and the verifier of PKCE are made of
that, with a key that only this node has. So an answer is of the browser that began, for nobody else has its
`flow`; a code is of use to nobody who reads it on its way, for the verifier is said to the issuer alone; an
answer is taken for OIDC_FLOW_S_MAX, and once; and what is remembered for that is bounded, and not made by
strangers.
"""

import hashlib
import hmac
from collections import OrderedDict
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from moorline.core.access.id_token import BadToken, decoded, encoded
from moorline.limits import (
    NONCE_BYTES,
    OIDC_CODE_CHARACTERS_MAX,
    OIDC_FLOW_S_MAX,
    OIDC_FLOWS_DONE_MAX,
)

_TIME_BYTES: Final = 8
_FLOW_CHARACTERS: Final = 64

Text = Annotated[str, Meta(max_length=_FLOW_CHARACTERS)]


class Begun(msgspec.Struct, frozen=True):
    """`flow` is for the page alone, `verifier` for nobody."""

    flow: str
    state: str
    nonce: str
    verifier: str

    @property
    def challenge(self) -> str:
        """S256 (RFC 7636, 4.2)."""
        return encoded(hashlib.sha256(self.verifier.encode()).digest())

    def __repr__(self) -> str:
        return "Begun(…)"


class Answer(msgspec.Struct, frozen=True):
    """What a page brings: what it kept, and what stood in its address when it came back."""

    flow: Text
    state: Text
    code: Annotated[str, Meta(min_length=1, max_length=OIDC_CODE_CHARACTERS_MAX)]
    iss: Annotated[str, Meta(max_length=OIDC_CODE_CHARACTERS_MAX)] = ""

    def __repr__(self) -> str:
        return "Answer(…)"


class NotOurs(ValueError):
    """An answer of no login that is under way here; the text says so to whoever brings it."""


class Flows:
    """Of one node. A restart ends all that are under way."""

    def __init__(self, key: bytes) -> None:
        assert len(key) >= NONCE_BYTES, "a key that can be guessed"
        self._key = key
        self._done: OrderedDict[str, int] = OrderedDict()
        """Those that are done or being done, by when they would end; in the order of their ends, nearly."""

    def begin(self, redirect: str, now_s: int, random: bytes) -> Begun:
        assert len(random) == NONCE_BYTES, "chance that can be guessed"
        return self._made(encoded(now_s.to_bytes(_TIME_BYTES) + random), redirect)

    def take(self, answer: Answer, redirect: str, now_s: int) -> Begun:
        """The login that this is the answer of; from now on it is taken."""
        begun = self._made(answer.flow, redirect)
        if not hmac.compare_digest(begun.state.encode(), answer.state.encode()):
            raise NotOurs("this login did not begin in this window: begin again")
        ends_s = _begun_s(answer.flow) + OIDC_FLOW_S_MAX
        if not now_s < ends_s <= now_s + OIDC_FLOW_S_MAX:
            raise NotOurs("this login took too long: begin again")
        self._forget(now_s)
        if answer.flow in self._done:
            raise NotOurs("this login was done already: begin again")
        if len(self._done) >= OIDC_FLOWS_DONE_MAX:
            raise NotOurs("too many log in at once: try again later")
        self._done[answer.flow] = ends_s
        return begun

    def give_back(self, flow: str) -> None:
        """It came to nothing: no place is held by that, and whoever brings it again asks the issuer again."""
        self._done.pop(flow, None)

    def check(self) -> None:
        assert len(self._done) <= OIDC_FLOWS_DONE_MAX, f"{len(self._done)} logins are remembered"

    def _forget(self, now_s: int) -> None:
        while self._done:
            first = next(iter(self._done))
            if self._done[first] > now_s:
                return
            del self._done[first]

    def _made(self, flow: str, redirect: str) -> Begun:
        return Begun(
            flow, *(self._derived(use, flow, redirect) for use in ("state", "nonce", "verifier"))
        )

    def _derived(self, use: str, flow: str, redirect: str) -> str:
        # Parts with a sign between them that none of them has: no two lists of them look alike.
        said = "\0".join((use, flow, redirect)).encode()
        return encoded(hmac.digest(self._key, said, "sha256"))


def _begun_s(flow: str) -> int:
    """Behind the state, which says that the flow is ours."""
    try:
        return int.from_bytes(decoded(flow)[:_TIME_BYTES])
    except BadToken:
        raise NotOurs("this login did not begin in this window: begin again") from None
