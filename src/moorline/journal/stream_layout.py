"""Room: journal. What the streams of a folder are as a whole, in one line: `node=n1 shards=8 version=1`."""

from moorline.errors import StartError
from moorline.ids import NODE_NAME
from moorline.journal.disk import Disk
from moorline.journal.segment_index import read_all
from moorline.limits import STREAM_SHARDS_MAX

PATH = "layout"
VERSION = 1


def read_layout(disk: Disk) -> int:
    """How many shards were in use at the last start; 0 if there was none, or nobody can tell."""
    fields = _fields(disk)
    version = fields.get("version", str(VERSION))
    if version.isdecimal() and int(version) > VERSION:
        raise StartError(
            f"the streams were written by a newer Moorline (layout {version}): start that one, or "
            "give this one another data folder"
        )
    shards = fields.get("shards", "")
    found = int(shards) if shards.isdecimal() else 0
    return found if found <= STREAM_SHARDS_MAX else 0


def read_home(disk: Disk) -> str:
    """What the node of these streams is known by, whatever it is called; empty if nobody can tell."""
    home = _fields(disk).get("node", "")
    return home if NODE_NAME.fullmatch(home) else ""


def _fields(disk: Disk) -> dict[str, str]:
    text = read_all(disk, PATH).decode(errors="replace")
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def write_layout(disk: Disk, node: str, shards: int) -> None:
    """The home of the node too: a copy of the folder is still of that node."""
    text = f"node={node} shards={shards} version={VERSION}\n".encode()
    if read_all(disk, PATH) != text:
        disk.write_whole(PATH, text)
