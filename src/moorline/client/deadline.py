"""Room: client. How long a call may take, for all calls within a block.

with moorline.deadline(2.0):
    await moor.publish("orders/eu", b"ahoy")
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from moorline.errors import ConfigError

_SET: ContextVar[float | None] = ContextVar("moorline_deadline_s")


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Each call of a client that stays, made in this block by this task, ends within that time; None: never.

    One that never left is `Unreachable` then, and nothing was done. Else its outcome is unknown.
    """
    check_deadline(seconds)
    token = _SET.set(seconds)
    try:
        yield
    finally:
        _SET.reset(token)


def check_deadline(seconds: float | None) -> None:
    if seconds is not None and not seconds > 0:
        raise ConfigError(f"a deadline is a number of seconds above 0, or None, not {seconds}")


def deadline_of(default: float | None) -> float | None:
    """What this call has."""
    return _SET.get(default)
