"""Room: wire. The base of all messages.

A message is an array on the wire: its tag, then its fields in order. A newer peer may add fields at
the end with defaults; an older one skips what it does not know.
"""

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from moorline.errors import CallFailed, Elsewhere, MoorlineError, OverQuota
from moorline.limits import ADDRESS_LENGTH_MAX, HOME_ADDRESSES_MAX
from moorline.wire.bounds import Code, Name, Words, cut


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Small and flat, so the garbage collector need not look at it."""

    weighed_by: ClassVar[str] = ""
    """The list that makes a message of this kind long work; empty where there is none."""


class Call(Message, frozen=True, gc=False):
    """A message that wants an answer; `call` is the caller's own number for it."""

    call: int


class Answer(Message, frozen=True, gc=False):
    """The answer to the call of that number."""

    call: int


class Excess(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Which quota a call met, for programs that come again by themselves."""

    quota: Code
    bound: int | None = None
    """None where it is another principal's, of whom nothing more is said."""
    retry_after_ms: int | None = None
    """None where to wait is not enough."""


class Redirect(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where to ask instead: the home of what was named, and where its node listens."""

    home: Name
    addresses: Annotated[
        tuple[Annotated[str, Meta(max_length=ADDRESS_LENGTH_MAX)], ...],
        Meta(max_length=HOME_ADDRESSES_MAX),
    ]


class Failed(Answer, frozen=True, gc=False, tag=6):
    """The call was refused; `code` is stable, `text` is for people. `excess` is there with OVER_QUOTA, and
    `redirect` with ELSEWHERE."""

    code: Code
    text: Words
    excess: Excess | None = None
    redirect: Redirect | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "text", cut(self.text))

    @staticmethod
    def of(call: int, error: MoorlineError) -> "Failed":
        """How a call is answered that an error ended."""
        excess = None
        if isinstance(error, OverQuota):
            excess = Excess(error.quota, error.bound, error.retry_after_ms)
        redirect = None
        if isinstance(error, Elsewhere):
            redirect = Redirect(error.home, error.addresses)
        return Failed(call, error.code, str(error), excess, redirect)

    def error(self) -> CallFailed:
        """The same at the caller."""
        error = CallFailed.of(self.code, self.text)
        if isinstance(error, OverQuota) and self.excess is not None:
            error.quota, error.bound = self.excess.quota, self.excess.bound
            error.retry_after_ms = self.excess.retry_after_ms
        if isinstance(error, Elsewhere) and self.redirect is not None:
            error.home, error.addresses = self.redirect.home, self.redirect.addresses
        return error


class CallsGivenUp(Message, frozen=True, gc=False, tag=48):
    """Nobody waits for these calls any more, `count` of them from `first` on.

    A call that still waits for its turn is answered by `Failed("GIVEN_UP")` and never takes effect; any
    other is answered as if nothing had been said.
    """

    first: int
    count: Annotated[int, Meta(ge=1)]
