"""What a sync of a log costs beside a program that makes folders: a control for `bench.checkpoints`.

    python -m bench.log_syncs [--quick] [--json]

Nothing of Moorline runs here but its disk. One process makes folders with two small files each and syncs
the disk behind every 1,024 of them, as a checkpoint does. Another one writes 30 KB and syncs, again and
again: into a file that grows, and into one whose blocks were written before. What is longest there no log
can avoid.
"""

import asyncio
import sys
import time
from itertools import count
from pathlib import Path

from bench.report import Report, run_bench, tell
from moorline.journal.disk import DiskFile, FileDisk
from moorline.limits import MIB

ROUNDS, SECONDS = 3, 10
BATCH = bytes(range(256)) * 117
PAUSE_S = 0.005
PREPARED_BYTES = 64 * MIB
FOLDERS_PER_SYNC = 1_024


def make_folders(root: Path, seconds: float) -> None:
    """As many as it can in that time."""
    disk, ends_s = FileDisk(root), time.monotonic() + seconds
    for number in count():
        folder = f"{number % 256:02x}/{number}"
        disk.make_folders(folder)
        for name in ("messages.log", "queue.log"):
            file = disk.open(f"{folder}/{name}", create=True)
            file.append(BATCH[:2_000])
            file.close()
        if number % FOLDERS_PER_SYNC == 0:
            disk.sync_all()
            if time.monotonic() > ends_s:
                return


def log_file(disk: FileDisk, kind: str) -> DiskFile:
    file = disk.open(kind, create=True)
    if kind == "prepared":
        for _ in range(PREPARED_BYTES // MIB):
            file.append(bytes(MIB))
    file.sync()
    disk.sync_all()
    return file


def syncs(file: DiskFile, kind: str, seconds: float) -> list[float]:
    """How long each took, sorted."""
    took, offset, ends_s = [], 0, time.monotonic() + seconds
    while time.monotonic() < ends_s:
        began_s = time.perf_counter()
        if kind == "prepared":
            file.write_at(offset, BATCH)
            offset = (offset + len(BATCH)) % (PREPARED_BYTES - len(BATCH))
        else:
            file.append(BATCH)
        file.sync()
        took.append(time.perf_counter() - began_s)
        time.sleep(PAUSE_S)
    return sorted(took)


async def run(report: Report, folder: Path, is_quick: bool) -> None:
    seconds = 2 if is_quick else SECONDS
    for number in range(1 if is_quick else ROUNDS):
        for kind in ("growing", "prepared"):
            root = folder / f"{kind}-{number}"
            disk = FileDisk(root)
            file = log_file(disk, kind)
            tell(f"{kind} log beside a program that makes folders, round {number + 1}")
            maker = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.log_syncs"),
                *("--folders", str(root / "made"), str(seconds)),
            )
            took = await asyncio.to_thread(syncs, file, kind, seconds)
            await maker.wait()
            file.close()
            case = f"{kind} {number + 1}"
            report.row(case, "longest_sync_ms", took[-1] * 1_000, "ms")
            report.row(case, "sync_p99_ms", took[int(len(took) * 0.99)] * 1_000, "ms")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--folders"]:
        make_folders(Path(sys.argv[2]), float(sys.argv[3]))
    else:
        run_bench("log_syncs", __doc__, run)
