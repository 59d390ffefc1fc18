"""Draws the pictures of the documents: `python tools/pictures.py docs/pictures`.

`rooms.svg` is drawn from the layers that import-linter checks (`pyproject.toml`) and the words that
ARCHITECTURE.md has for them; `system.svg` from the few lines below. A test compares the files with what this
draws. The pictures of the console are taken by a browser: `python -m tests.console.pictures docs/pictures`.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
WIDTH = 960
GAP = 8

STYLE = """
text { font: 15px system-ui, sans-serif; fill: #1c2733; }
.small { font-size: 12px; fill: #4a5866; }
.label { font-size: 13px; fill: #4a5866; }
rect { stroke: #8fa1b3; stroke-width: 1; }
.line { stroke: #5b6b7a; stroke-width: 1.5; fill: none; }
.tip { fill: #5b6b7a; }
.a { fill: #e8eef6; } .b { fill: #e4f1ec; } .c { fill: #fbf1de; } .d { fill: #f3e8f1; } .e { fill: #eeeeea; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6ebf0; } .small, .label { fill: #aab6c2; }
  rect { stroke: #5f7285; }
  .a { fill: #22303f; } .b { fill: #1d3530; } .c { fill: #3d331f; }
  .d { fill: #38273a; } .e { fill: #2e2e2b; }
}
"""
TONES = {
    "a": ("cli", "demo", "node"),
    "b": ("console", "mqtt", "spark", "sync", "client"),
    "c": ("sessions", "groups", "services", "staging", "queues", "topics", "resolver", "records"),
    "d": ("access", "cluster", "catalog", "journal", "net"),
}
"""What rooms are for: to start it, to come in, the subjects, the ground; all others are pure."""


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, drawn in (("rooms.svg", rooms()), ("system.svg", system())):
        (folder / name).write_text(drawn, encoding="utf-8")


# --- the rooms --------------------------------------------------------------------------------------


def layers() -> list[list[str]]:
    """From the top down; rooms of one layer do not import each other."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    return [[room.strip() for room in layer.split("|")] for layer in contract["layers"]]


def words() -> dict[str, str]:
    """What ARCHITECTURE.md says that each room is, in the list of them."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    listed = re.search(r"^## Rooms.*?^```\n(.*?)^```", text, re.M | re.S)
    assert listed is not None, "ARCHITECTURE.md has a list of the rooms"
    found: dict[str, str] = {}
    for line in listed[1].splitlines():
        names, _, said = re.sub(r"`", "", line).partition("  ")
        here = [name.strip() for name in names.split("|")]
        told = [one.strip() for one in said.split("|")]
        # Where one sentence is about several rooms they share it.
        told = told if len(told) == len(here) else [""] * len(here)
        found |= dict(zip(here, told, strict=True))
    return found


def rooms() -> str:
    said = words()
    tone = {room: name for name, some in TONES.items() for room in some}
    drawn: list[str] = []
    height, top = 46, 34
    for row in layers():
        for room, (left, width) in zip(row, shares(len(row), 0, WIDTH), strict=True):
            text = said.get(room, "")
            lines = wrapped(text, int(width / 6.2))[:2]
            drawn.append(box(left, top, width, height, tone.get(room, "e"), room, lines))
        top += height + GAP
    return svg(
        top, [label(2, 20, "The rooms of src/moorline: imports go down, and never up"), *drawn]
    )


# --- the system -------------------------------------------------------------------------------------

OUTSIDE = (
    ("programs in Python", ("send, publish, subscribe,", "follow tables and values")),
    ("clients of MQTT", ("devices, browsers,", "mosquitto, paho")),
    ("pages in browsers", ("rows of tables;", "the console")),
    ("Spark", ("archive, verify, replay,", "flows of your own")),
)
NODES = (
    ("node-1", ("queues and streams", "on its own disk")),
    ("node-2", ("queues and streams", "on its own disk")),
    ("node-3", ("queues and streams", "on its own disk")),
)


def system() -> str:
    drawn = [label(2, 20, "Who talks to whom")]
    for (name, lines), (left, width) in zip(OUTSIDE, shares(4, 0, WIDTH), strict=True):
        drawn += [box(left, 34, width, 74, "b", name, lines), arrow(left + width / 2, 108, 148)]
    drawn.append(
        f'<rect class="c" x="0.5" y="150" width="{WIDTH - 1}" height="116" rx="8"/>'
        + label(
            12, 170, "a cluster: any node serves any client, and reads the streams of the others"
        )
    )
    for (name, lines), (left, width) in zip(NODES, shares(3, 12, WIDTH - 24), strict=True):
        drawn += [box(left, 182, width, 74, "a", name, lines), arrow(left + width / 2, 256, 306)]
    drawn.append(
        box(
            0,
            308,
            WIDTH,
            56,
            "d",
            "Postgres, the catalog",
            (
                "who is there, rights, groups and places, associations; one that a node brings, or yours",
            ),
        )
    )
    return svg(372, drawn)


# --- drawing ----------------------------------------------------------------------------------------


def shares(count: int, left: float, width: float) -> Iterator[tuple[float, float]]:
    one = (width - GAP * (count - 1)) / count
    for number in range(count):
        yield left + number * (one + GAP), one


def box(
    left: float, top: float, width: float, height: float, tone: str, name: str, lines: Sequence[str]
) -> str:
    middle = left + width / 2
    first = top + (height - 16 * len(lines)) / 2 + 5
    parts = [
        f'<rect class="{tone}" x="{left + 0.5:.1f}" y="{top + 0.5:.1f}" width="{width - 1:.1f}" '
        f'height="{height - 1:.1f}" rx="6"/>',
        f'<text x="{middle:.1f}" y="{first:.1f}" text-anchor="middle" font-weight="600">'
        f"{escape(name)}</text>",
    ]
    for number, line in enumerate(lines, 1):
        parts.append(
            f'<text class="small" x="{middle:.1f}" y="{first + 16 * number:.1f}" text-anchor="middle">'
            f"{escape(line)}</text>"
        )
    return "".join(parts)


def label(x: float, y: float, text: str) -> str:
    return f'<text class="label" x="{x:.0f}" y="{y:.0f}">{escape(text)}</text>'


def arrow(x: float, top: float, bottom: float) -> str:
    """Both ends: what is asked goes one way, what is answered and pushed the other."""
    return (
        f'<path class="line" d="M{x:.1f} {top + 6:.1f} V{bottom - 6:.1f}"/>'
        f'<path class="tip" d="M{x - 5:.1f} {top + 8:.1f} h10 l-5 -7 z '
        f'M{x - 5:.1f} {bottom - 8:.1f} h10 l-5 7 z"/>'
    )


def wrapped(text: str, most: int) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def svg(height: float, drawn: Sequence[str]) -> str:
    body = "\n".join(drawn)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-1 0 {WIDTH + 2} {height:.0f}" role="img">\n'
        f"<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
