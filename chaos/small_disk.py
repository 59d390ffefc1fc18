"""A small disk for one node: a tmpfs in a mount namespace that only this campaign enters.

A process of its own holds the namespace. It reads from a pipe of ours, so it ends with us however we end, and
the disk with it.
"""

import contextlib
import itertools
import os
import shutil
import subprocess
from pathlib import Path

RESERVE_BYTES = 64 << 20
"""Below this a node refuses messages (limits.DISK_FREE_BYTES_MIN)."""
ANSWER_S_MAX = 20


class SmallDisk:
    """`folder` is where the node sees it, `outside` where we do."""

    def __init__(self, folder: Path, size_mib: int = 256, files_max: int = 0) -> None:
        """With a bound of its files and folders, if one is given: a disk may be full by that too."""
        self.folder = folder
        self.why_not = ""
        """Why this machine gives no such disk; empty if it does."""
        self._holder: subprocess.Popen[bytes] | None = None
        self._rights = ["-m"] if os.geteuid() == 0 else ["-rm"]
        folder.mkdir(parents=True)
        if shutil.which("unshare") is None or shutil.which("nsenter") is None:
            self.why_not = "no unshare or nsenter on this machine"
            return
        options = f"size={size_mib}m" + (f",nr_inodes={files_max}" if files_max else "")
        script = f"mount -t tmpfs -o {options} small {folder} && echo mounted && exec cat"
        holder = subprocess.Popen(
            ["unshare", *self._rights, "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._holder = holder
        assert holder.stdout is not None
        if holder.stdout.readline() != b"mounted\n":
            self.close()
            self.why_not = "this machine lets nobody mount a small disk"

    @property
    def outside(self) -> Path:
        """The same folder as seen from here."""
        if self._holder is None:
            return self.folder
        return Path(f"/proc/{self._holder.pid}/root{self.folder}")

    def prefix(self) -> list[str]:
        """Goes before a command that is to see the disk."""
        if self._holder is None:
            return []
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", f"--target={self._holder.pid}", "--mount", *user, "--"]

    def fill(self, *, left_bytes: int) -> None:
        """Takes all room but so much, as somebody else's file."""
        room = os.statvfs(self.outside)
        taken = room.f_bavail * room.f_frsize - left_bytes
        if taken > 0:
            with (self.outside / "ballast").open("ab") as file:
                os.posix_fallocate(file.fileno(), file.tell(), taken)

    def fill_files(self) -> None:
        """Takes all places for files, and no room: what is there may grow, and nothing can be made."""
        names = self.outside / "ballast-of-names"
        names.mkdir()
        with contextlib.suppress(OSError):
            for number in itertools.count():
                (names / str(number)).touch()

    def empty_files(self) -> None:
        shutil.rmtree(self.outside / "ballast-of-names")

    def empty(self) -> None:
        (self.outside / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        if self._holder is not None:
            holder, self._holder = self._holder, None
            assert holder.stdin is not None
            assert holder.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                holder.stdin.close()
            try:
                holder.wait(ANSWER_S_MAX)
            except subprocess.TimeoutExpired:
                holder.kill()
                holder.wait()
            holder.stdout.close()
