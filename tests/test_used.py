"""What ships is used by what ships: what only tests need is with the tests."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "moorline"
USERS = ("src", "bench", "chaos", "demo", "examples", "tools")

CALLED_BY_OTHERS = {
    "get_reset_query": "asyncpg asks a connection that goes back",
    "onQueryStarted": "Spark's listener",
    "onQueryProgress": "Spark's listener",
    "onQueryIdle": "Spark's listener",
    "onQueryTerminated": "Spark's listener",
    "streamReader": "Spark's data source",
    "streamWriter": "Spark's data source",
    "diagram": "draws the states in docs/design",
    "cache_set_aside": "the program's own question to a table",
}


def words(folder: str) -> Iterator[str]:
    for path in (ROOT / folder).rglob("*"):
        if path.suffix in (".py", ".js", ".mjs", ".html", ".sql") and path.is_file():
            yield from re.findall(r"\w+", path.read_text(encoding="utf-8"))


@cache
def defined() -> list[tuple[Path, str]]:
    return list(_defined())


def _defined() -> Iterator[tuple[Path, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        if path.is_relative_to(SOURCE / "testing"):
            continue  # for tests of users
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    if not any("command(" in ast.unparse(one) for one in node.decorator_list):
                        yield path, node.name


def test_what_only_tests_use_is_not_in_the_source() -> None:
    used = Counter(word for folder in USERS for word in words(folder))
    unused = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, name in defined()
        if used[name] == 1 and not name.startswith("__") and name not in CALLED_BY_OTHERS
    ]
    assert not unused, "nobody calls these: take them out, or move them to the tests"


def test_what_others_call_is_there() -> None:
    assert set(CALLED_BY_OTHERS) <= {name for _, name in defined()}
