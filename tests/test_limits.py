"""Each limit has one value: a name that is given twice takes the first one's away, and nothing says so."""

import ast
from collections import Counter
from pathlib import Path

LIMITS = Path(__file__).parents[1] / "src/moorline/limits.py"


def test_no_limit_is_given_twice() -> None:
    names = [
        target.id
        for node in ast.parse(LIMITS.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    ]
    twice = [name for name, count in Counter(names).items() if count > 1]
    assert not twice, f"{twice}: a limit is given twice, and the last one counts for both"
