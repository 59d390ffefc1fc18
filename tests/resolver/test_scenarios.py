"""Every scenario of the resolver has a test that is called by its number, and docs/testing.md says where."""

from tests.resolver.scenarios import DOCUMENT, SCENARIOS, TABLE, carried, written


def test_a_test_is_called_by_its_number() -> None:
    found = carried()
    assert [f"test_t{number}_…" for number in SCENARIOS if not found.get(number)] == []


def test_every_number_is_one_of_a_scenario() -> None:
    strange = {number: names for number, names in carried().items() if number not in SCENARIOS}
    assert not strange, "a test with a number that nobody knows"


def test_the_document_has_the_table_as_it_is() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert TABLE.search(document), "the table has lost its marks"
    assert written(document) == document, "run: python -m tests.resolver.scenarios"
