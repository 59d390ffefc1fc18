"""Room: config. The table of all settings in docs/configuration.md, written from the Struct.

`python -m moorline.config.reference docs/configuration.md` rewrites it in place.
"""

import sys
from pathlib import Path

import msgspec

from moorline.config.keys import Key, keys_of
from moorline.config.settings import Config
from moorline.config.shown import shown

BEGIN = "<!-- keys: written by `python -m moorline.config.reference docs/configuration.md` -->"
END = "<!-- end of keys -->"


def table(kind: type[msgspec.Struct] = Config) -> str:
    rows = ["| key | default | accepted | what it is |", "|---|---|---|---|"]
    rows += [_row(key) for key in keys_of(kind).values()]
    return "\n".join(rows)


def page(text: str) -> str:
    """The page with its table replaced; what is around the two marks is left as it is."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"the page has no line {BEGIN}"
    assert end, f"the page has no line {END}"
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def _row(key: Key) -> str:
    cells = (f"`{key.name}`", f"`{shown(key.default)}`", key.accepted, key.help)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text()))
