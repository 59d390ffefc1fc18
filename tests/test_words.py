"""The words of docs/glossary.md that the code follows: names that were given up do not come back."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.sources import SOURCE, trees_with

GIVEN_UP = {
    "Place": "Cursor for a reader's position, else what it is: ArchiveLocation, MessagePosition, ScanSlot",
    "Places": "what they are",
    "Line": "Shard of a stream, NotifiedLine of a table",
    "Lines": "what they are",
    "Lost": "Gap of a stream, LostMessages at a client, LinkLost of a link",
    "Hole": "Gap, with a reason",
    "Missing": "Gap, with a reason",
    "Skipped": "Gap, with a reason",
    "Reading": "Delivery",
    "Running": "what runs",
    "Leading": "LeaderHost",
    "PrivateLines": "PrivateSubscription",
    "Stretch": "what a frame scan finds",
}
MODULES_GIVEN_UP = {
    "places", "place", "lines", "line", "holding", "founding", "leading", "handler", "private", "stretches",
    "running",
    "parts", "saving", "utils", "helpers", "manager", "leader_event", "borrower_event", "stream_view",
}  # fmt: skip
ONE_OF_A_NAME = ("Handler", "Gap", "Cursor", "Shard", "Position", "Reach", "Window")
"""Names of subjects: whoever searches for one finds one."""


@cache
def names() -> list[tuple[Path, list[str]]]:
    """Of each module that may have one of those which are looked for."""
    words = "|".join((*GIVEN_UP, *MODULES_GIVEN_UP, *ONE_OF_A_NAME))
    pattern = rf"^\s*class ({words})\b|\bas ({words})\b|^\s*({words}) = "
    return [(path, list(named(tree))) for path, tree in trees_with(pattern)]


def named(tree: ast.Module) -> Iterator[str]:
    """Classes, aliases of types, and names under which something is imported."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.alias(asname=str(name)):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) if (
                name[:1].isupper() and not name.isupper()
            ):
                yield name


def test_words_that_were_given_up_do_not_come_back() -> None:
    back = [
        f"{path.relative_to(SOURCE)}: {name}: {GIVEN_UP[name]}"
        for path, found in names()
        for name in found
        if name in GIVEN_UP
    ]
    assert not back, "\n".join(back)


def test_no_module_has_a_name_that_was_given_up() -> None:
    back = [str(path) for path in SOURCE.rglob("*") if path.stem in MODULES_GIVEN_UP]
    assert not back, "\n".join(back)
    assumed = [
        f"{path.relative_to(SOURCE)}: as {name}"
        for path, found in names()
        for name in found
        if name in MODULES_GIVEN_UP
    ]
    assert not assumed, "\n".join(assumed)


def test_one_name_is_one_thing() -> None:
    found = Counter(name for _, several in names() for name in set(several))
    twice = {name: found[name] for name in ONE_OF_A_NAME if found[name] > 1}
    assert not twice, f"{twice}: whoever searches for one finds several"
