"""How the tests are shared out between workers."""

from tests.sharing import LENGTHS, dealt, groups_of, lengths_text, read_lengths

LENGTHS_S = {"a.py": 40.0, "b.py": 30.0, "c.py": 20.0, "d.py": 10.0, "e.py": 0.0}


def test_files_are_dealt_into_hands_of_about_one_length() -> None:
    assert dealt(LENGTHS_S, 2) == {"a.py": 0, "b.py": 1, "c.py": 1, "d.py": 0, "e.py": 0}
    assert set(dealt(LENGTHS_S, 1).values()) == {0}


def test_files_on_spark_share_few_sessions_and_the_longest_group_begins() -> None:
    groups = groups_of(LENGTHS_S, ["b.py", "c.py", "d.py"], 2)
    assert groups == {
        "a.py": "a.py",
        "b.py": "spark-0",
        "c.py": "spark-1",
        "d.py": "spark-1",
        "e.py": "e.py",
    }
    assert list(groups) == ["a.py", "b.py", "c.py", "d.py", "e.py"]
    assert list(groups_of(LENGTHS_S, ["b.py", "c.py", "d.py"], 1))[:3] == ["b.py", "c.py", "d.py"]


def test_lengths_are_read_as_they_are_written() -> None:
    kept = {path: s for path, s in LENGTHS_S.items() if s}
    assert read_lengths(lengths_text(LENGTHS_S)) == kept


def test_the_list_is_of_files_that_are_there() -> None:
    root = LENGTHS.parents[1]
    assert [path for path in read_lengths(LENGTHS.read_text()) if not (root / path).exists()] == []
