"""Room: catalog. What a write means that Postgres did not answer."""

from collections.abc import Iterator
from contextlib import contextmanager

from moorline.errors import CatalogUnreachable, OutcomeUnknown


@contextmanager
def unsure(what: str) -> Iterator[None]:
    """Around a write that somebody waits for: one that was lost on the way may have been stored.

    A statement may also come to its end after we have given it up. So its loss is no failure.
    """
    try:
        yield
    except CatalogUnreachable as error:
        raise OutcomeUnknown(
            f"whether {what} is not known: {error}; look before you ask again"
        ) from error
