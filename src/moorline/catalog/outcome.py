"""Room: catalog. What a change means that Postgres did not answer: the one rule for all of them.

Whoever changes the catalog for somebody who waits does it within `unsure`, from the first statement that
changes something to the last one of the call. If Postgres goes in there, the call is neither done nor failed:
a statement that was sent may have been stored, or come to its end after we have given it up, and one that was
answered is stored whatever becomes of those behind it. Only where no connection could be had for the first
one is it certain that nothing was changed; that stays a `CatalogUnreachable`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from moorline.errors import CatalogUnreachable, OutcomeUnknown

LOOK = "look before you ask again"
HARMLESS = "to ask again is harmless"


class _Sent:
    """Whether a statement has left for Postgres."""

    def __init__(self) -> None:
        self.is_sent = False


_watching: ContextVar[_Sent | None] = ContextVar("_watching", default=None)


def note_sent() -> None:
    """A connection is there, and a statement is about to leave on it."""
    watched = _watching.get()
    if watched is not None:
        watched.is_sent = True


@contextmanager
def unsure(what: str, then: str = LOOK) -> Iterator[None]:
    """Around a change that somebody waits for; `then` says what to do about a loss."""
    # One within another is a part of it: what the outer one has sent counts for both.
    watched = _watching.get() or _Sent()
    token = _watching.set(watched)
    try:
        yield
    except CatalogUnreachable as error:
        if not watched.is_sent:
            raise
        raise OutcomeUnknown(f"whether {what} is not known: {error}; {then}") from error
    finally:
        _watching.reset(token)
