"""Room: core/directory. Paths of values, and the entries by which publishers name them.

    check_path("/oslo/fjord/temperature")    refuses what cannot be one
    entry_id("/oslo/fjord", DEFAULT)         the bytes that stand for it in sets

A path is compared by its levels, never by its characters: `/a-b` is not below `/a`.
"""

from typing import Final

from moorline.errors import BadPath
from moorline.limits import PATH_BYTES_MAX, PATH_LEVELS_MAX

DEFAULT: Final = 1
"""Flag: the publisher makes whatever path below this one is asked for."""
WRITABLE: Final = 2
"""Flag: the publisher takes values back."""
FLAGS: Final = DEFAULT | WRITABLE

RESERVED: Final = frozenset(
    {
        "admin",
        "groups",
        "homes",
        "nodes",
        "queues",
        "records",
        "services",
        "sessions",
        "shards",
        "topics",
    }
)
"""First levels below which nodes alone publish: what is found there is the cluster itself."""

_CONTROLS = frozenset(
    map(
        chr,
        (*range(32), *range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A)),
    )
)
"""Control characters, and what breaks lines or turns the direction of text: a path is shown as it is."""


def check_path(path: str) -> None:
    """Refuses what cannot be the path of a value."""
    if (fault := _fault(path)) is not None:
        raise BadPath(f"{path[:80]!r} is no path: {fault}")


def is_path(path: str) -> bool:
    """The same as an answer, for batches of which one bad path must not fail the others."""
    return _fault(path) is None


def is_reserved(path: str) -> bool:
    return path[1:].partition("/")[0] in RESERVED


def parent_of(path: str) -> str:
    """The path one level up; that of `/a` is `/`, which has none above it."""
    return path[: path.rfind("/")] or "/"


def is_at_or_below(path: str, root: str) -> bool:
    if root == "/":
        return True
    return path.startswith(root) and (len(path) == len(root) or path[len(root)] == "/")


def entry_id(path: str, flags: int) -> bytes:
    """Flags are a part of it: an entry whose flags changed is another one, which a digest shows."""
    return bytes((flags,)) + path.encode()


def entry_of(one: bytes) -> tuple[str, int]:
    return one[1:].decode(), one[0]


def _fault(path: str) -> str | None:
    if not path.startswith("/"):
        return "it does not begin with /"
    if len(path) > PATH_BYTES_MAX:
        return f"it has more than {PATH_BYTES_MAX} bytes"
    try:
        # Most are ASCII, whose characters are bytes.
        if not path.isascii() and len(path.encode()) > PATH_BYTES_MAX:
            return f"it has more than {PATH_BYTES_MAX} bytes"
    except UnicodeEncodeError:
        return "it is not text"
    if path.endswith("/"):
        return "it names nothing, or ends with /: leave that out"
    if "//" in path:
        return "it has an empty level"
    if path.count("/") > PATH_LEVELS_MAX:
        return f"it has more than {PATH_LEVELS_MAX} levels"
    if not path.isprintable() and not _CONTROLS.isdisjoint(path):
        return (
            "it has a control character, a break of lines, or one that turns the direction of text"
        )
    return None
