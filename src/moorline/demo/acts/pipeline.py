"""Act: an archive that is proven. Topics go to Parquet; a row is removed by hand, found, and repaired.

Spark has a process of its own, with one session for all steps. Each row of the summary is a line of JSON:

    python -m moorline.demo.acts.pipeline ADDRESS FOLDER
"""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import moorline
from moorline.demo.acts import together
from moorline.demo.stage import Stage

TITLE = "an archive on Spark"

MESSAGES = 200_000
"""In all shards together some 30 MB: about two generations of each are sealed."""
BATCH = 2_000
BODY = b"12 knots from the north-west, sea state 4, visibility good, all well on board; nothing to report "
PATIENCE_S = 300
MEMBER_IS_THERE = "the query has begun"
PROVEN = "sealed streams proven by their digests"
FETCHED = "fetched from the node by repair"
NAMES = "names"
"""What the query got of the group, a line each."""
LOG_BYTES_SHOWN = 4_000


async def play(stage: Stage) -> None:
    folder = stage.folder / "spark"
    folder.mkdir()
    told: dict[str, str] = {}
    async with started(stage.address, folder) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        started_s = time.perf_counter()
        await publish(stage.address)
        rate = MESSAGES / (time.perf_counter() - started_s)
        await until_sealed(stage.address)
        # Spark gets ready meanwhile, and waits for this line.
        process.stdin.write(b"published\n")
        stage.tell(TITLE, f"{MESSAGES:,} more messages published", f"{rate:,.0f} a second")
        async with asyncio.timeout(PATIENCE_S):
            # Java and the workers have this pipe too: it ends when the last of them is gone.
            async for line in process.stdout:
                what, result = json.loads(line)
                if what == MEMBER_IS_THERE:
                    await together.play(stage, folder / NAMES)
                    process.stdin.write(b"all have come\n")
                else:
                    stage.tell(TITLE, what, result)
                    told[what] = result
            code = await process.wait()
    if code:
        log = (folder / "log").read_text(errors="replace")
        raise SystemExit(f"demo: the archive failed:\n{log[-LOG_BYTES_SHOWN:]}")
    stage.claim(
        TITLE,
        "Spark archives all topics, and digests prove it against what the nodes sealed",
        told[PROVEN],
    )
    stage.claim(
        TITLE,
        "a row that is removed from the archive by hand is named, and fetched again",
        told[FETCHED],
    )


@contextlib.asynccontextmanager
async def started(address: str, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "moorline.demo.acts.pipeline",
            address,
            str(folder),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            # What Python leaves in a temporary folder goes with that of the demo.
            env={**os.environ, "TMPDIR": str(folder)},
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()  # its Java hears of that, and ends
            await process.communicate()


async def publish(address: str) -> None:
    async with moorline.connect(address) as moor:
        for start in range(0, MESSAGES, BATCH):
            numbers = range(start, start + BATCH)
            await moor.publish_all(
                [moorline.record(f"log/{n % 97}", BODY + b"%d" % n) for n in numbers]
            )


async def until_sealed(address: str) -> None:
    """A node seals a stream a moment after its end; the proof is to be of all of them."""
    async with moorline.connect(address) as moor:
        while any(  # noqa: ASYNC110 - nobody is told of a seal
            one.is_sealed and not one.digest for one in (await moor.streams()).streams
        ):
            await asyncio.sleep(0.1)


def on_spark(address: str, folder: Path) -> None:
    """All of it with one session: a start takes longer than the work."""
    # Imported here: the demo itself does without Spark.
    import moorline.spark
    from moorline.spark.jobs.archive import ArchiveOptions, archive
    from moorline.spark.jobs.node_side import ask
    from moorline.spark.jobs.verify import VerifyOptions, verify
    from moorline.spark.session import SHORT_JOB

    where, source = str(folder / "archive"), {"address": address}
    started_s = time.perf_counter()
    options = SHORT_JOB["spark.driver.extraJavaOptions"]
    spark = moorline.spark.session(
        config={
            "spark.driver.extraJavaOptions": f"{options} -Djava.io.tmpdir={folder}",
            "spark.local.dir": str(folder),
        }
    )
    try:
        tell("a local Spark, ready in", f"{time.perf_counter() - started_s:.1f} s")
        sys.stdin.readline()
        query = together.member(spark, address, folder / NAMES)
        tell(MEMBER_IS_THERE, "")
        sys.stdin.readline()
        query.stop()
        started_s = time.perf_counter()
        done = archive(spark, ArchiveOptions(where, source), lambda: ask(source).seals)
        rate = done.messages / (time.perf_counter() - started_s)
        tell("archived as Parquet, each message once", f"{done.messages:,}, {rate:,.0f} a second")

        started_s = time.perf_counter()
        report = verify(spark, VerifyOptions(where, source), ask(source))
        assert report.streams, f"no stream is sealed: {report}"
        assert report.is_equal, report
        tell(
            PROVEN,
            f"{len(report.streams)} of {len(report.streams) + report.behind}: {report.messages:,} "
            f"messages in {time.perf_counter() - started_s:.1f} s",
        )

        stream = report.streams[len(report.streams) // 2].stream
        offset = remove_a_row(where, stream)
        tell("removed from the archive by hand", f"offset {offset:,} of {stream}")
        found = verify(spark, VerifyOptions(where, source), ask(source))
        (wrong,) = found.differing
        (difference,) = wrong.differences
        assert (wrong.stream, difference.first, difference.upto) == (stream, offset, offset + 1)
        tell(
            "found by verify", f"offset {difference.first:,} of {wrong.stream} is {difference.kind}"
        )

        mended = verify(spark, VerifyOptions(where, source, repair=True), ask(source))
        assert mended.is_equal, mended
        assert mended.messages == report.messages, mended
        tell(FETCHED, f"{mended.fetched} message of {mended.messages:,}")
        tell("proven again", f"{len(mended.streams)} streams")
    finally:
        spark.stop()


def remove_a_row(where: str, stream: str) -> int:
    """As somebody would who has Python at hand. The offset of the row is returned."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from moorline.spark.jobs.archive_files import Archive

    file = next(file for file in Archive(where).live() if str(file.stream) == stream)
    path = Path(where, file.path)
    table = pq.ParquetFile(path).read()
    row = table.num_rows // 2
    offset: int = table["offset"][row].as_py()
    pq.write_table(pa.concat_tables([table.slice(0, row), table.slice(row + 1)]), path)
    return offset


def tell(what: str, result: str) -> None:
    print(json.dumps([what, result]), flush=True)


if __name__ == "__main__":
    on_spark(sys.argv[1], Path(sys.argv[2]))
