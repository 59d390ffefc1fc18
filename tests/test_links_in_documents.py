"""Every link of a document leads to a file that is there, and to a heading that is in it."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```.*?^```", re.M | re.S)
HEADING = re.compile(r"^#+ (.*)$", re.M)


@cache
def anchors(document: Path) -> frozenset[str]:
    """As renderers make them: small letters, no marks, dashes for spaces."""
    headings = HEADING.findall(BLOCK.sub("", document.read_text(encoding="utf-8")))
    words = (re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "]", one)) for one in headings)
    return frozenset(one.lower().replace(" ", "-") for one in words)


def wrong_in(document: Path, text: str) -> list[str]:
    wrong = []
    for link in LINK.findall(BLOCK.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        to = (document.parent / path).resolve() if path else document
        if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to)):
            wrong.append(link)
    return wrong


def test_every_link_leads_somewhere() -> None:
    wrong = {
        str(path.relative_to(ROOT)): wrong_in(path, path.read_text(encoding="utf-8"))
        for path in DOCUMENTS
    }
    assert {path: found for path, found in wrong.items() if found} == {}


def test_a_link_that_leads_nowhere_is_found() -> None:
    text = "[a](docs/start.md) [b](docs/none.md) [c](docs/start.md#none) [d](https://x.example)"
    assert wrong_in(ROOT / "README.md", text) == ["docs/none.md", "docs/start.md#none"]
