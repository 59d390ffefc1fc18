"""Room: core/access. The path below which a proxy serves this node, beside pages of others.

Some proxies take it away before they ask, others leave it: both are understood, and nothing is served twice
by that, since there is one table of routes. What only begins with the same letters is not below it.
"""

import re
from typing import Final

from moorline.limits import HTTP_BASE_PATH_CHARACTERS_MAX

FORM: Final = (
    "empty, or /LEVEL/LEVEL… of letters, digits, ., _, ~ and -, without a slash at the end"
)

_FORM: Final = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]+)*")


def check_base_path(text: str) -> None:
    """ValueError if it is none. Nothing in it can be written in two ways, so it is compared as it is."""
    if len(text) > HTTP_BASE_PATH_CHARACTERS_MAX or _FORM.fullmatch(text) is None:
        raise ValueError(f"accepted: {FORM}")


def below(base_path: str, path: str) -> str:
    """The path as the routes know it."""
    if not base_path or not path.startswith(base_path):
        return path
    rest = path[len(base_path) :]
    if not rest:
        return "/"
    return rest if rest.startswith("/") else path
