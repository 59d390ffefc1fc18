"""Every module of the core has a test file of its own name, in which each of its invariants can fail."""

import ast
import re
from pathlib import Path

import moorline.core

CORE = Path(next(iter(moorline.core.__path__)))
TESTS = Path(__file__).parent
MODULES = sorted(
    path.relative_to(CORE) for path in CORE.rglob("*.py") if path.name != "__init__.py"
)


def test_a_module_has_tests_of_its_own_name() -> None:
    assert len(MODULES) > 100
    assert [lack for module in MODULES if (lack := lack_of_tests(module))] == []


def lack_of_tests(module: Path) -> str:
    path = TESTS / module.parent / f"test_{module.name}"
    if not path.exists():
        return f"core/{module} has no {path.relative_to(TESTS.parent)}"
    tree = ast.parse(path.read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    name = ".".join(("moorline", "core", *module.with_suffix("").parts))
    if name not in imported:
        return f"{path.name} does not use {name}"
    # A test class of hypothesis is an assignment: `TestThing = Thing.TestCase`.
    tests = [
        node
        for node in tree.body
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name.startswith("test_")
        )
        or (isinstance(node, ast.ClassDef) and node.name.startswith("Test"))
    ]
    return "" if tests else f"{path.name} has no tests"


NAMED = re.compile(r"\b([A-Z]{1,2}\d): ")
"""The beginning of what an assertion says when an invariant is broken."""

LISTED = re.compile(r"^    ([A-Z]{1,2}\d)  \S", re.MULTILINE)
"""A line of the list at the head of a module."""


def test_every_invariant_of_a_module_is_broken_by_hand_in_its_tests() -> None:
    unshown = {str(module): unbroken_in(module) for module in MODULES}
    assert {module: names for module, names in unshown.items() if names} == {}, "can these fail?"


def unbroken_in(module: Path) -> list[str]:
    """The invariants that no test breaks, and those that are listed and never looked at."""
    source = (CORE / module).read_text()
    head = ast.get_docstring(ast.parse(source), clean=False) or ""
    named = set(NAMED.findall(source)) | set(LISTED.findall(head))
    tests = (TESTS / module.parent / f"test_{module.name}").read_text()
    broken = {name for name in named if re.search(rf"\b{name}\b", tests, re.IGNORECASE)}
    # Whoever meets a name in an error finds what it means.
    return sorted(named - broken | set(LISTED.findall(head)) - set(NAMED.findall(source)))
