"""Every scenario of access has a test that carries its name, and docs/testing.md says where it is."""

import re
from pathlib import Path

from tests.access.scenarios import DOCUMENT, ROW, SCENARIOS, carried, docstrings_of


def test_a_test_carries_its_name() -> None:
    found = carried()
    assert [name for name in SCENARIOS if not found.get(name)] == [], "no docstring names these"


def test_the_document_names_files_in_which_it_is_tested() -> None:
    rows = dict(ROW.findall(DOCUMENT.read_text(encoding="utf-8")))
    assert set(rows) == set(SCENARIOS)
    found = carried()
    for name, files in rows.items():
        named = set(re.findall(r"`([^`]+)`", files))
        assert named <= found[name], f"{name}: run python -m tests.access.scenarios"
        assert named


def test_a_name_counts_in_the_docstring_of_a_test_alone(tmp_path: Path) -> None:
    file = tmp_path / "test_made.py"
    file.write_text('"""A01."""\n\n\ndef helper() -> None:\n    """A02."""\n\n\n')
    assert list(docstrings_of(file)) == []
    file.write_text('def test_it() -> None:\n    """A03: so."""\n')
    assert list(docstrings_of(file)) == ["A03: so."]
