"""`moor pipeline`: its help without Spark, what it refuses at once, and an archive found out and repaired."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.process.nodes import NodeProcess, run_moor
from tests.spark.conftest import SMALL_GENERATIONS
from tests.spark.publishing import COUNT, publish
from tests.spark.quick_java import quicken

from moorline.cli.spark_run import check_every, time_us
from moorline.errors import ConfigError
from moorline.spark.jobs.archive_files import Archive, Holdings

COPY = """
from moorline.spark import flow

@flow(source={"topics": "a"}, sink={"topic": "b"})
def copy(frame):
    return frame
"""

NOBODY = "--address=tcp://127.0.0.1:1"
JOBS = ("archive", "verify", "replay", "materialize", "audit", "diff", "run")


@pytest.mark.slow
def test_help_is_quick_and_needs_no_spark() -> None:
    program = (
        "import sys; from moorline.cli.main import run; run(['--help']); run(['pipeline', '--help']);"
        "heavy = {'pyspark', 'pyarrow', 'numpy', 'polars', 'asyncpg'} & set(sys.modules);"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert all(job in done.stdout for job in JOBS)


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS)
def test_every_job_has_help_with_an_example(job: str) -> None:
    done = run_moor("pipeline", job, "--help")
    assert done.returncode == 0
    words = " ".join(done.stdout.split())
    assert f"Example: moor pipeline {job}" in words
    assert all(flag in words for flag in ("--master", "--remote", "--conf", "--json"))


@pytest.mark.slow
def test_clean_says_what_nobody_claims_and_removes_it_when_told(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    archive.open(Holdings("parquet", ["#"]))
    done = run_moor("pipeline", "clean", str(tmp_path))
    assert (done.returncode, done.stdout) == (
        0,
        "every file is claimed by an entry, and every entry is there\n",
    )
    (tmp_path / "mine.parquet").write_bytes(b"x")
    done = run_moor("pipeline", "clean", str(tmp_path), "--json")
    assert (done.returncode, json.loads(done.stdout)["files"]) == (17, ["mine.parquet"])
    assert "--yes removes the files" in done.stderr
    done = run_moor("pipeline", "clean", str(tmp_path), "--yes")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (
        0,
        "1 file removed, 0 entries forgotten",
    )
    assert not (tmp_path / "mine.parquet").exists()
    assert run_moor("pipeline", "clean", str(tmp_path / "nowhere")).returncode == 3
    assert "Example: moor pipeline clean" in run_moor("pipeline", "clean", "--help").stdout


def test_times_are_read_as_people_write_them() -> None:
    assert time_us("", "--from", 7) == 7
    assert time_us("1970-01-01T00:00:01Z", "--from", 0) == 1_000_000
    assert time_us("1970-01-01T02:00:00+02:00", "--from", 0) == 0
    assert time_us("1970-01-02", "--from", 0) == 86_400_000_000
    with pytest.raises(ConfigError, match="--until 'noon'"):
        time_us("noon", "--until", 0)


@pytest.mark.slow
def test_what_can_be_refused_is_refused_before_a_session_starts(tmp_path: Path) -> None:
    address, new = NOBODY, str(tmp_path / "new")
    (tmp_path / "flows.py").write_text("x = 1\n")
    (tmp_path / "copy.py").write_text(COPY)
    Archive(str(tmp_path / "kept")).open(Holdings("parquet", ["#"]))
    file, is_file = str(tmp_path / "copy.py"), "copy.py is a file: an archive is a folder"
    nobody = "postgresql://me@127.0.0.1:1/db"
    secret = "postgresql://me:secret@127.0.0.1:1/db"
    ids, there = tmp_path / "ids.csv", str(tmp_path / "kept")
    ids.write_text("id\n1\n")
    for code, words, arguments in (
        (7, "127.0.0.1:1", ("audit", "--catalog", nobody)),
        (3, "has a password in it, which every list", ("audit", "--catalog", secret)),
        (3, "give catalog-file:FILE#SERVICE", ("diff", f"catalog:{secret}#a", file)),
        (
            3,
            "--every 'soon': accepted: a time as '30 seconds'",
            ("archive", new, "--every", "soon"),
        ),
        (3, "--every '5'", ("run", str(tmp_path / "copy.py"), "--every", "5")),
        (3, is_file, ("replay", file, address)),
        (3, is_file, ("replay", f"{file}/below", address)),
        (2, "and tcp://127.0.0.1:1 is not TLS", ("verify", new, address, "--ca", file)),
        (3, "there is no archive at", ("replay", str(tmp_path / "a"), address)),
        (3, "has no flows", ("run", str(tmp_path / "flows.py"), address)),
        (3, "which catalog?", ("audit",)),
        (3, "is no set of ids", ("diff", "catalog:postgresql://x", "b.parquet")),
        (3, "--conf 'x=1'", ("diff", f"{ids}", f"{ids}", "--conf", "x=1")),
        (3, "no parquet files there", ("diff", "a.parquet", f"{ids}")),
        (3, "has no column 'no'; there are id", ("diff", f"{ids}#no", f"{ids}")),
        (3, "is there already: name a folder", ("diff", f"{ids}", f"{ids}", "--out", there)),
        (3, "--from 'noon'", ("replay", str(tmp_path / "a"), "--from", "noon")),
        (2, "Missing argument", ("diff", "a.parquet")),
    ):
        done = run_moor("pipeline", *arguments)
        assert (done.returncode, words in done.stderr) == (code, True), done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not Path(new).exists()


@pytest.mark.slow
def test_a_node_that_is_not_there_is_told_before_a_session_starts(tmp_path: Path) -> None:
    """Each job has the patience of some seconds for a node that starts: they wait side by side."""
    (tmp_path / "copy.py").write_text(COPY)
    Archive(str(tmp_path / "kept")).open(Holdings("parquet", ["#"]))
    asked = {"archive": "new", "verify": "new", "replay": "kept", "run": "copy.py"}

    def told(job: str) -> tuple[int, list[str]]:
        done = run_moor("pipeline", job, str(tmp_path / asked[job]), NOBODY)
        return done.returncode, done.stderr.splitlines()

    with ThreadPoolExecutor(len(asked)) as threads:
        for code, lines in threads.map(told, asked):
            (line,) = lines
            assert (code, line.endswith("is the node running?")) == (10, True), line
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("text", ["1 second", "30 seconds", "5 minutes", "500 milliseconds"])
def test_times_between_batches(text: str) -> None:
    check_every(text)
    for wrong in ("soon", "", "5", f"-{text}", f"{text} or so"):
        with pytest.raises(ConfigError, match="accepted: a time as '30 seconds' or '5 minutes'"):
            check_every(wrong)


@pytest.mark.long
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_archive_that_was_changed_is_found_out_and_repaired(tmp_path: Path) -> None:
    quicken()
    where = tmp_path / "archive"

    def moor(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_moor("pipeline", *arguments, f"--address={node.address}", timeout_s=280)

    with NodeProcess(tmp_path / "data", *SMALL_GENERATIONS) as node:
        asyncio.run(publish(node.address))
        done = moor("archive", str(where), "--json")
        assert (done.returncode, done.stderr) == (0, "")
        facts = json.loads(done.stdout)
        assert (facts["messages"], facts["batches"]) == (COUNT, 1)

        sealed = Archive(str(where)).seals()
        file = next(one for one in Archive(str(where)).live() if one.stream in sealed)
        table = pq.ParquetFile(where / file.path).read()
        pq.write_table(table.slice(1), where / file.path)

        done = moor("verify", str(where))
        assert done.returncode == 17
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"moor: 1 of {len(sealed)} streams differ from their seals; 1 file")
        assert line.endswith("that were written; --repair puts it right")
        assert "1 missing" in done.stdout
        done = moor("verify", str(where), "--repair", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        facts = json.loads(done.stdout)
        assert (facts["is_equal"], facts["fetched"], facts["removed"]) == (True, 1, 0)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that has one topic."""
    with NodeProcess(tmp_path_factory.mktemp("node") / "data", "--roles=broker") as made:
        done = run_moor("topic", "publish", "another", "ahoy", f"--address={made.address}")
        assert done.returncode == 0
        yield made


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("job", ["archive", "verify"])
def test_a_file_is_no_archive(running: NodeProcess, tmp_path: Path, job: str) -> None:
    (tmp_path / "notes.txt").write_text("mine\n")
    done = run_moor("pipeline", job, str(tmp_path / "notes.txt"), f"--address={running.address}")
    assert done.returncode == 3
    assert done.stderr.endswith("/notes.txt is a file: an archive is a folder\n")
    assert (tmp_path / "notes.txt").read_text() == "mine\n"


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_filters_that_match_nothing_are_told(running: NodeProcess, tmp_path: Path) -> None:
    quicken()
    topics = "missing/#,no"
    where = (str(tmp_path / "empty"), "--topics", topics, f"--address={running.address}")
    done = run_moor("pipeline", "archive", *where, timeout_s=280)
    assert (done.returncode, done.stderr) == (
        0,
        f"moor: no stored message matches {topics}: moor topic list shows the topics\n",
    )
