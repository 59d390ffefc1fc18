"""Each limit has one value: a name that is given twice takes the first one's away, and nothing says so."""

import ast
from collections import Counter
from pathlib import Path

LIMITS = Path(__file__).parents[1] / "src/moorline/limits"


def test_no_limit_is_given_twice() -> None:
    """In one file, or in two: the room takes all of them together."""
    files = list(LIMITS.glob("[!_]*.py"))
    assert len(files) > 10
    names = [
        target.id
        for file in files
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    ]
    twice = [name for name, count in Counter(names).items() if count > 1]
    assert not twice, f"{twice}: a limit is given twice, and the last one counts for both"


def test_the_room_takes_every_file() -> None:
    room = (LIMITS / "__init__.py").read_text(encoding="utf-8")
    missing = [
        file.name
        for file in LIMITS.glob("[!_]*.py")
        if f"from moorline.limits.{file.stem} import *\n" not in room
    ]
    assert missing == []
