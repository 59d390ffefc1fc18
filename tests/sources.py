"""The source as trees, for tests that look through all of it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "moorline"


def trees_with(pattern: str) -> Iterator[tuple[Path, ast.Module]]:
    """Of the modules in whose text this is found: to parse all of them takes seconds."""
    wanted = re.compile(pattern, re.MULTILINE)
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if wanted.search(text):
            yield path, ast.parse(text)
