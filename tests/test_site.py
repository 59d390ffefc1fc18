"""The rendered pages: every document has its place in the navigation, and they render without a warning."""

import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
RENDER = ROOT / "tools" / "docs"


def settings() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return read


def pages(entry: Any) -> list[str]:
    match entry:
        case str():
            return [entry]
        case dict():
            return [page for below in entry.values() for page in pages(below)]
        case _:
            return [page for below in entry for page in pages(below)]


def test_every_document_has_one_place_in_the_navigation() -> None:
    written = {
        str(path.relative_to(ROOT))
        for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
        if not re.match(r"\d{4}-", path.name)  # a decision: the list of them is the page for it
    }
    listed = pages(settings()["nav"])
    assert sorted(listed) == sorted(written)


def test_the_site_reads_as_one_text() -> None:
    order = [next(iter(one)) for one in settings()["nav"]]
    first = ["Start", "How-to", "Concepts", "Protocols", "Reference"]
    assert order == [*first, "Performance", "Decisions", "Glossary", "Project"]


@pytest.mark.slow
def test_the_site_renders_and_fetches_nothing_from_elsewhere(tmp_path: Path) -> None:
    if subprocess.run([RENDER, "--ready"], check=False).returncode != 0:
        pytest.skip("no generator here: `make docs` brings one, and does the same")
    done = subprocess.run(
        [RENDER, tmp_path / "site"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    start = (tmp_path / "site" / "docs" / "start.html").read_text(encoding="utf-8")
    assert "<table>" in start
    assert "moor queue create" in re.sub(r"<[^>]+>", "", start)


def drawing() -> Any:
    source = importlib.util.spec_from_file_location("pictures", ROOT / "tools/pictures.py")
    assert source is not None
    assert source.loader is not None
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    return module


def test_the_drawings_are_those_of_the_rooms_as_they_are() -> None:
    pictures = drawing()
    for name, drawn in (("rooms.svg", pictures.rooms()), ("system.svg", pictures.system())):
        there = (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8")
        assert there == drawn, "run: .venv/bin/python tools/pictures.py docs/pictures"
    named = {room for layer in pictures.layers() for room in layer}
    assert named <= pictures.words().keys(), "ARCHITECTURE.md has a line for each room"


def test_every_picture_is_shown_and_every_picture_that_is_shown_is_there() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    shown = {
        (page.parent / name).resolve()
        for page in pages
        for name in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    }
    assert shown == set((ROOT / "docs" / "pictures").iterdir())
