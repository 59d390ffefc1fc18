"""Room: config. A configuration file to begin with: every setting with its help, as a comment at its default.

So a file that nobody edited says what a node does without one, and stays true when a default changes.
"""

import textwrap
from itertools import groupby

import msgspec

from moorline.config.keys import Key, keys_of
from moorline.config.settings import Config

WIDTH = 100

HEAD = """\
# A configuration of Moorline. Take the # away from what you want to change; what stays a comment is the
# default of the node that reads this. Flags and variables (MOOR_…) are stronger: `moor config show` says
# what holds, and `moor config check` whether a node would take it.
"""


def template(kind: type[msgspec.Struct] = Config) -> str:
    """The text of the file: plain keys first, since in TOML whatever follows a table is in it."""
    parts = [HEAD]
    keys = sorted(keys_of(kind).values(), key=_section)  # sorted keeps the order within a section
    for section, its in groupby(keys, key=_section):
        if section:
            parts.append(f"[{section}]\n")
        parts += map(_entry, its)
    return "\n".join(parts)


def _section(key: Key) -> str:
    return key.name.rpartition(".")[0]


def _entry(key: Key) -> str:
    words = f"{key.help} Accepted: {key.accepted}."
    comment = textwrap.fill(
        words,
        WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"{comment}\n#{key.name.rpartition('.')[2]} = {_written(key.default)}\n"


def _written(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            # A basic string of TOML has the escapes of JSON.
            return msgspec.json.encode(value).decode()
        case list() | tuple():
            return "[" + ", ".join(map(_written, value)) + "]"
        case _:
            raise NotImplementedError(f"a default cannot be {value!r}")
