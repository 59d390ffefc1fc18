"""The tree of errors and the table of exit codes are one."""

import re
from pathlib import Path

from moorline import errors
from moorline.cli import output

TABLE = (Path(__file__).parents[1] / "docs/exit-codes.md").read_text()


def tree(kind: type[errors.MoorlineError]) -> list[type[errors.MoorlineError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in tree(child))]


def test_every_error_has_its_row() -> None:
    rows = re.findall(r"^\| (\d+) \| ([^|]*) \|", TABLE, re.MULTILINE)
    documented = {
        (name, int(code)) for code, names in rows for name in re.findall(r"`(\w+)`", names)
    }
    assert output.OutputFailed in tree(errors.MoorlineError)
    ours = [kind for kind in tree(errors.MoorlineError) if kind.__module__.startswith("moorline.")]
    assert documented == {(kind.code, kind.exit_code) for kind in ours}


def test_the_drawing_names_every_error() -> None:
    drawn = errors.__doc__ or ""
    for kind in tree(errors.MoorlineError):
        if kind.__module__ == "moorline.errors":
            assert kind.__name__ in drawn


def test_an_error_of_a_start_has_a_code_of_its_own() -> None:
    starts = errors.StartError.__subclasses__()
    assert len({kind.exit_code for kind in starts}) == len(starts)
