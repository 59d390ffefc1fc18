"""Looks at processes."""

from pathlib import Path

WAIT_S_MAX = 30


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    # A zombie has ended; it only waits for its parent to hear of it.
    return stat.rpartition(")")[2].split()[0] != "Z"


def processes_with(words: str) -> list[int]:
    """The processes that have these words in their command lines."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and is_running(int(entry.name)):
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if words.encode() in command:
                found.append(int(entry.name))
    return found
