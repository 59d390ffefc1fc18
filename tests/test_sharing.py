"""How the tests are shared out between workers."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sharing import (
    LENGTHS,
    ROOT,
    SESSIONS_MAX,
    cores,
    dealt,
    groups_of,
    groups_of_tests,
    lengths_text,
    read_lengths,
)

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


def test_every_file_has_a_group_and_spark_has_few() -> None:
    groups = groups_of_tests()
    assert set(groups) == {
        path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/test_*.py")
    }
    on_spark = [name for name in groups.values() if name.startswith("spark-")]
    assert len(on_spark) > len(set(on_spark)) == min(cores(), SESSIONS_MAX)


@pytest.mark.process
def test_a_worker_gets_whole_files(tmp_path: Path) -> None:
    files = ["tests/core/test_ranges.py", "tests/core/test_topic.py", "tests/test_ids.py"]
    command = [sys.executable, "-m", "pytest", "-vv", "-n", "2", "--dist", "loadscope", *files]
    # In a folder of its own: it would first remove what is left of earlier runs, for minutes.
    command.append(f"--basetemp={tmp_path / 'its'}")
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120).stdout
    ran = re.findall(r"\[(gw\d+)\].* PASSED (tests/\S+\.py)::", told)
    assert {file for _, file in ran} == set(files), told
    assert len(set(ran)) == len(files), "one file went to two workers"
