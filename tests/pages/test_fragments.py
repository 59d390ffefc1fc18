"""The Python of all documents: it compiles, and what it takes from `moorline` is there, with these keywords.

Whole programs are run elsewhere: those of the how-tos and of docs/start.md where the page is followed, those
of the guides to queues, topics and services in `tests/cli`. A fragment of a few lines has no node to run on.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.pages.following import ROOT

import moorline
from moorline.client.group import Group
from moorline.client.moor import Moor
from moorline.client.queue import Queue

OBJECTS: dict[str, Any] = {
    "moorline": moorline,
    "moor": Moor,
    "queue": Queue,
    "group": Group,
}
"""What these names are, in every document."""

FRAGMENTS = {
    f"{path.relative_to(ROOT)}:{number}": block
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)
    )
}


def wrong_in(text: str) -> list[str]:
    tree = compile(text, "fragment", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(tree, ast.AST)
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for one in names:
                    if one.name.startswith("moorline"):
                        importlib.import_module(one.name)
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("moorline"):
                found = importlib.import_module(module)
                missing = [one.name for one in names if not hasattr(found, one.name)]
                if missing:
                    return [f"{module} has no {', '.join(missing)}"]
    return list(_unknown(tree))


def _unknown(tree: ast.AST) -> Iterator[str]:
    rebound = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and _is_stored(node)
    } - {"moor", "queue", "group"}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if (
                name in OBJECTS and name not in rebound
            ):
                if not _has(OBJECTS[name], attribute):
                    yield f"{name} has no {attribute}"
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr=attribute), keywords=given
            ) if name in OBJECTS and name not in rebound:
                yield from _unknown_keywords(name, attribute, [one.arg for one in given])


def _unknown_keywords(name: str, attribute: str, given: list[str | None]) -> Iterator[str]:
    called = getattr(OBJECTS[name], attribute, None)
    if called is None or not callable(called):
        return
    known = inspect.signature(called).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known):
        return
    names = {one.name for one in known}
    yield from (f"{name}.{attribute} takes no {one}" for one in given if one and one not in names)


def _has(found: Any, attribute: str) -> bool:
    """Fields too, which a class has only in its annotations or its objects."""
    if hasattr(found, attribute) or attribute in getattr(found, "__annotations__", {}):
        return True
    return inspect.isclass(found) and f"self.{attribute}" in inspect.getsource(found)


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def test_what_a_fragment_takes_from_moorline_is_there() -> None:
    wrong = {place: wrong_in(text) for place, text in FRAGMENTS.items()}
    assert {place: found for place, found in wrong.items() if found} == {}


def test_what_is_not_there_is_found() -> None:
    assert wrong_in("await moor.nothing()") == ["moor has no nothing"]
    assert wrong_in("moorline.connect('tcp://x:1', color=1)") == ["moorline.connect takes no color"]
    assert wrong_in("await moor.publish('a', b'', producer='x', sequence=1)") == []
    assert wrong_in("from moorline.client.moor import Moor, Boat") == [
        "moorline.client.moor has no Boat"
    ]
    with pytest.raises(SyntaxError):
        wrong_in("def (")
