"""The archive of a campaign: made and proven by `moor pipeline`, read here without it, and tampered with."""

import asyncio
import json
import random
import subprocess
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from chaos.history import Got, History, Mishap, Proof, name_of
from chaos.world import MOOR, Node, clean_environment, run
from moorline.spark.jobs.archive_files import Archive

ARCHIVE = "archive"
TOPICS = "load/#"
JOB_S_MAX = 400
DRIFT_FOUND = 17


class Archiving:
    """One archive, in a folder of the campaign's."""

    def __init__(self, folder: Path, history: History, node: Node) -> None:
        self._where = folder / "archive"
        self._temporary = folder / "spark"
        self._temporary.mkdir(exist_ok=True)
        self._history = history
        self._node = node

    async def run(self, chance: random.Random, faults: Counter[str]) -> list[str]:
        """Archives, is killed in the middle, archives again, proves; then somebody tampers with it."""
        told = []
        if await self._killed(chance):
            faults["archive job killed"] += 1
            told.append("the job was killed and done again")
        made = await self._job("archive", "--topics", TOPICS, "--allow-loss")
        if made.returncode:
            self._history.note(Mishap(f"moor pipeline archive: {made.stderr[-600:]}"))
            return told
        self._note_rows()
        proven = await self._verify("as archived")
        told.append(f"{len(proven)} sealed streams compared")
        if tampered := self._tamper(chance, proven):
            faults["archive tampered with"] += 1
            told.append(tampered)
            await self._verify("tampered with", is_equal=False)
            await self._verify("repaired", "--repair")
        return told

    async def _killed(self, chance: random.Random) -> bool:
        """Starts a job and ends it with its Java in the middle of its work."""
        process = await asyncio.create_subprocess_exec(
            *self._command("archive", "--topics", TOPICS, "--allow-loss"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=self._environment(),
            start_new_session=True,
        )
        try:
            await asyncio.wait_for(process.wait(), 12 + chance.random() * 15)
        except TimeoutError:
            process.kill()  # its Java hears of that, and ends
            await process.wait()
            return True
        return False

    def _command(self, job: str, *given: str) -> list[str]:
        words = [*MOOR, "pipeline", job, str(self._where), *given, "--json"]
        if job in ("archive", "verify"):
            words.append(f"--address={self._node.address}")
        return [*words, f"--conf=spark.local.dir={self._temporary}"]

    def _environment(self) -> dict[str, str]:
        # What Spark and Python leave in a temporary folder goes with that of the campaign.
        return {**clean_environment(), "TMPDIR": str(self._temporary)}

    async def _job(self, job: str, *given: str) -> "subprocess.CompletedProcess[str]":
        return await run(self._command(job, *given), JOB_S_MAX, self._environment())

    async def _verify(self, when: str, *given: str, is_equal: bool | None = None) -> set[str]:
        """Notes the proof beside the truth; the streams that it was about are returned."""
        done = await self._job("verify", *given)
        if done.returncode not in (0, DRIFT_FOUND):
            self._history.note(Mishap(f"moor pipeline verify: {done.stderr[-600:]}"))
            return set()
        truth = self._is_whole() if is_equal is None else is_equal
        said = done.returncode == 0
        self._history.note(Proof(f"moor pipeline verify, {when}", said_equal=said, is_equal=truth))
        return {one["stream"] for one in json.loads(done.stdout)["streams"]}

    def _rows(self) -> list[Got]:
        rows = []
        for file in Archive(str(self._where)).live():
            stream = file.stream
            table = pq.ParquetFile(self._where / file.path).read(columns=["offset", "key", "value"])
            for row in table.sort_by("offset").to_pylist():
                key = (row["key"] or b"").decode()
                name = name_of(row["value"])
                rows.append(
                    Got(ARCHIVE, stream.home, stream.shard_number, row["offset"], key, name)
                )
        return rows

    def _note_rows(self) -> None:
        for row in self._rows():
            self._history.note(row)

    def _is_whole(self) -> bool:
        noted = {
            (event.node, event.shard, event.offset, event.name)
            for event in self._history.events
            if isinstance(event, Got) and event.reader == ARCHIVE
        }
        rows = [(row.node, row.shard, row.offset, row.name) for row in self._rows()]
        return len(rows) == len(set(rows)) and set(rows) == noted

    def _tamper(self, chance: random.Random, sealed: set[str]) -> str:
        """Takes a row out of a file, as somebody would who has Python at hand."""
        live = Archive(str(self._where)).live()
        files = sorted((one for one in live if str(one.stream) in sealed), key=lambda f: f.path)
        if not files:
            return ""
        path = self._where / chance.choice(files).path
        table = pq.ParquetFile(path).read()
        row = chance.randrange(table.num_rows)
        offset = table["offset"][row].as_py()
        pq.write_table(pa.concat_tables([table.slice(0, row), table.slice(row + 1)]), path)
        return f"offset {offset} taken out of {path.name}"
