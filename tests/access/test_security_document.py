"""docs/security.md says of its example rows what the tree says, and names every letter and every quota."""

import re
from pathlib import Path

import pytest

from moorline.core.access.grants import Grants
from moorline.core.access.quota import Quota
from moorline.core.access.right import EVERYTHING, bits_of, letters_of
from moorline.core.access.row import Row, Subjects

TEXT = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")


def table(head: str) -> list[list[str]]:
    """The cells below a head, without the marks of code."""
    _, _, rest = TEXT.partition(f"\n{head}\n")
    assert rest, head
    rows = []
    for line in rest.splitlines()[1:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().strip("`") for cell in line.strip("|").split("|")])
    return rows


def rows() -> list[Row]:
    return [
        Row(path, subject, grants=bits_of(letters[1:]))
        if letters.startswith("+")
        else Row(path, subject, denies=bits_of(letters[1:]))
        for path, subject, letters in table("| path | subject | letters |")
    ]


@pytest.mark.parametrize(
    ("who", "letter", "path", "verdict", "why"), table("| who | right | path | verdict | why |")
)
def test_the_verdicts_of_the_example(
    who: str, letter: str, path: str, verdict: str, why: str
) -> None:
    subjects = Subjects(who, frozenset({"@everyone", "@authenticated", "@sales"}))
    found = Grants(rows()).rights_at(subjects, path) & bits_of(letter)
    assert ("granted" if found else "denied") == verdict, why


def test_every_letter_is_told() -> None:
    told = {letter for letter, *_ in table("| letter | it allows | example |")}
    assert told == set(letters_of(EVERYTHING))


def test_every_quota_is_told() -> None:
    section = TEXT.partition("\n## Quotas\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", section)) - {"OVER_QUOTA"}
    assert named == {str(one) for one in Quota}
