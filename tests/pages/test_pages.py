"""How pages are read, compared and followed; and that no page of docs/how-to goes without a test."""

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pages import test_how_to, test_how_to_spark
from tests.pages.comparing import is_among, is_printed
from tests.pages.following import ROOT, Reader, end_all_in, processes_in
from tests.pages.reading import (
    BadPage,
    Command,
    File,
    Interrupt,
    NotRun,
    Output,
    steps_of,
)

PAGE = """
Write `hello.py`:

```python
print("ahoy")
```

```console
$ python hello.py
ahoy
$ echo a \\
  b
a b
```

<!-- goes on: ready -->
```console
$ sleep 9
```
<!-- ctrl-c: sleep -->
<!-- printed by: other -->
```
late
```
<!-- not run: no machine -->
```console
$ reboot
```
<!-- typed until it prints: soon -->
```console
$ date
```
"""


def test_a_page_is_read_as_steps() -> None:
    assert list(steps_of(PAGE)) == [
        File("hello.py", 'print("ahoy")\n'),
        Command("python hello.py", ["ahoy"]),
        Command("echo a \\\n  b", ["a b"]),
        Command("sleep 9", [], "ready"),
        Interrupt("sleep"),
        Output("other", ["late"]),
        NotRun("no machine", "$ reboot\n"),
        Command("date", [], is_repeated=True),
    ]


@pytest.mark.parametrize(
    "block", ["```\nwhat?\n```", "```python\nwhere()\n```", "```console\nx\n```"]
)
def test_a_block_that_nobody_could_follow_is_an_error(block: str) -> None:
    with pytest.raises(BadPage):
        list(steps_of(block))


def test_what_differs_from_run_to_run_may_differ() -> None:
    page = ["2026-11-15T22:15:41.927+00:00  ahoy", "ready in 12.5 s  pid=12", "… left out", "…"]
    printed = ["2027-01-01T00:00:00.000+00:00 ahoy", "ready in 3 s pid=7", "x left out", "y", "z"]
    assert is_printed(page, printed)
    assert not is_printed(page[:1], ["2027-01-01T00:00:00.000+00:00 hello"])
    assert not is_printed(["3 messages"], ["4 messages"])
    assert not is_printed(["a"], ["a", "b"])
    assert is_among(["a", "c"], ["a", "b", "c"])
    assert not is_among(["c", "a"], ["a", "b", "c"])


def test_what_a_page_says_wrongly_is_found(tmp_path: Path) -> None:
    with Reader(tmp_path / "clone") as reader:
        reader.do(File("port", "tcp://127.0.0.1:7411\n"))
        assert "7411" not in (tmp_path / "clone" / "port").read_text()
        reader.do(Command("cat port; N=1", ["tcp://127.0.0.1:7411"]))
        reader.do(Command("echo $N", ["1"]))
        with pytest.raises(AssertionError, match="--- printed:\n1"):
            reader.do(Command("echo $N", ["2"]))
        with pytest.raises(AssertionError, match="ended with 3"):
            reader.do(Command("(exit 3)", []))
        reader.do(Command("echo begun; sleep 100", [], "begun"))
        with pytest.raises(AssertionError, match="nothing goes on"):
            reader.do(Interrupt("sleep 200"))
        reader.do(Interrupt("sleep 100"))
        reader.do(Command(".venv/bin/moor --version", ["moor …"]))


@pytest.mark.process
def test_a_page_that_fails_leaves_nobody_running(tmp_path: Path) -> None:
    folder = tmp_path / "clone"

    def follow() -> None:
        with Reader(folder) as reader:
            reader.do(Command(".venv/bin/moor serve", [], "ready:"))
            reader.do(Command("sleep 1000 &", []))
            assert len(processes_in(folder)) > 3
            reader.patience_s = 1
            reader.do(Command("sleep 2000", []))

    with pytest.raises(AssertionError, match="goes on and on"):
        follow()
    assert processes_in(folder) == {}


def test_whoever_does_not_end_is_killed(tmp_path: Path) -> None:
    script = "trap '' TERM; while :; do sleep 0.1; done"
    with subprocess.Popen(["sh", "-c", script], cwd=tmp_path) as stubborn:
        assert stubborn.pid in processes_in(tmp_path)
        end_all_in(tmp_path, within_s=0.2)
        assert stubborn.wait(10) == -signal.SIGKILL


def test_every_page_is_followed() -> None:
    text = "".join(Path(one.__file__ or "").read_text() for one in (test_how_to, test_how_to_spark))
    followed = set(test_how_to.BY_ITSELF) | set(re.findall(r'HOW_TO / "([\w-]+)\.md"', text))
    pages = {path.stem for path in test_how_to.HOW_TO.glob("*.md")} - {"README"}
    assert followed == pages


BY_THEIR_ROOMS = {"topics", "queues", "services"}
"""Guides whose commands tests/cli types."""


def fences_of(page: str) -> Iterator[tuple[str, str, str]]:
    """The line before each block, its language, and what is in it."""
    before, lines = "", iter(page.splitlines(keepends=True))
    for line in lines:
        if line.startswith("```"):
            yield before, line[3:].strip(), "".join(iter(lambda: next(lines, "```\n"), "```\n"))
        elif line.strip():
            before = line


def not_typed(page: str) -> list[str]:
    """Commands that no comment says anything of, of a page that nobody follows."""
    found = [
        step.text
        for step in steps_of(page, is_guide=True)
        if isinstance(step, Command) and not step.goes_on_at and not step.is_repeated
    ]
    for before, language, block in fences_of(page):
        if language == "sh" and not before.startswith("<!-- not run"):
            found.append(block)
        if not language and re.match(r"\s*(\$ |moor |make |pip |export )", block):
            found.append(f"say that it is `console`: {block}")
    return found


def test_every_command_of_every_page_is_typed_or_the_page_says_why_not() -> None:
    tests = Path(__file__).parent.glob("test_*.py")
    followed = set(re.findall(r'"(?:docs/)?([\w-]+)\.md"', "".join(map(Path.read_text, tests))))
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/*/*.md")]
    wrong = {
        str(page.relative_to(ROOT)): not_typed(page.read_text(encoding="utf-8"))
        for page in pages
        if page.stem not in followed | BY_THEIR_ROOMS | set(test_how_to.BY_ITSELF)
        and page.parent.name != "reference"
    }
    assert {page: commands for page, commands in wrong.items() if commands} == {}


def test_a_command_that_nobody_types_is_found() -> None:
    page = "```console\n$ a\n```\n\n```sh\nb\n```\n<!-- not run: x -->\n```sh\nc\n```\n\n```\nmoor d\n```\n"
    assert not_typed(page) == ["a", "b\n", "say that it is `console`: moor d\n"]


def test_every_page_is_in_the_list() -> None:
    listed = re.findall(r"\]\(([\w-]+)\.md\)", (test_how_to.HOW_TO / "README.md").read_text())
    assert {*listed} == {path.stem for path in test_how_to.HOW_TO.glob("*.md")} - {"README"}
    assert (ROOT / "docs").is_dir()
