"""Every scenario of records has a test that is called by its number, and docs/testing.md says where."""

from tests.records.scenarios import SCENARIOS, TABLE, carried, written
from tests.resolver.scenarios import DOCUMENT

OWN = {30}
"""Of this project, beside those that it was given: rows of transactions that are still to come."""


def test_a_test_is_called_by_its_number() -> None:
    ours = {
        number
        for number, files in carried().items()
        if any("tests/records/" in one for one in files)
    }
    assert [f"test_t{number}_…" for number in SCENARIOS if number not in ours] == []


def test_every_number_is_one_of_a_scenario() -> None:
    strange = set(carried()) - set(SCENARIOS) - OWN
    assert not strange, "a test with a number that nobody knows"


def test_the_document_has_the_table_as_it_is() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert TABLE.search(document), "the table has lost its marks"
    assert written(document) == document, "run: python -m tests.records.scenarios"
