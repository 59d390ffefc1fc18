"""Whatever file a document names is there: a move that forgets the documents is found here."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src/moorline"
ROOMS = sorted(path.name for path in SOURCES.iterdir() if (path / "__init__.py").exists())
NAMED = re.compile(rf"`((?:{'|'.join(ROOMS)})/[\w/]+\.(?:py|sql)|tests/[\w/]+\.py)`")
PATTERNS = re.compile(r"NAME|NOUN|NNNN|VERSION")
"""In the documents these stand for the name of something new."""


def documents() -> list[Path]:
    return [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


def missing_in(text: str) -> list[str]:
    named = {name for name in NAMED.findall(text) if not PATTERNS.search(name)}
    return sorted(
        name
        for name in named
        if not (ROOT if name.startswith("tests/") else SOURCES).joinpath(name).exists()
    )


def test_every_file_that_a_document_names_is_there() -> None:
    now = [
        path for path in documents() if path.name != "CHANGELOG.md"
    ]  # it tells of files that are gone
    missing = {str(path.relative_to(ROOT)): missing_in(path.read_text()) for path in now}
    assert {path: found for path, found in missing.items() if found} == {}


def test_a_file_that_is_not_there_is_found() -> None:
    text = "`core/link.py`, `core/nowhere.py`, `tests/nobody.py` and `core/NAME.py`"
    assert missing_in(text) == ["core/nowhere.py", "tests/nobody.py"]
