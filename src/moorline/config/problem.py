"""Room: config. Why a value is refused although its type is right, and how such a setting is described."""

from typing import NamedTuple

from msgspec import Meta


class Problem(NamedTuple):
    """Why values are refused although their types are right."""

    keys: tuple[str, ...]
    """The key that is named, then the others it was compared with."""
    accepted: str


def text_setting(description: str, accepted: str) -> Meta:
    """Of a setting whose form is checked by `problems()`."""
    return Meta(description=description, extra={"accepted": accepted})
