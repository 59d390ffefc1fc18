"""Room: journal/streams. Where the files of a shard lie; and what the streams of a folder are, in one line.

    node=n1 id=q3fJ… shards=8 version=3

`version` 3 has the log of small commits beside what 2 has; a program that does not know it would pass over
what only the log has. 4 has topics that are deleted (`deleted`), and is written where there are some.
`node` is the home of the node, `id` that of its data folder.
"""

import contextlib

from moorline.errors import Malformed, StartError
from moorline.ids import ID_BYTES, NODE_NAME, id_of, text_of
from moorline.journal.disk import Disk, read_all
from moorline.limits import STREAM_SHARDS_MAX

PATH = "layout"
VERSION, VERSION_WITHOUT_DELETED, VERSION_BEFORE = 4, 3, 2
NO_OWNER = bytes(ID_BYTES)
"""Of streams that are written without a node."""


def read_layout(disk: Disk) -> int:
    """How many shards were in use at the last start; 0 if there was none, or nobody can tell."""
    fields = _fields(disk)
    version = fields.get("version", str(VERSION))
    if version.isdecimal() and int(version) > VERSION:
        raise StartError(
            f"the streams were written by a newer Moorline (layout {version}): start that one, or "
            "give this one another data folder"
        )
    if version.isdecimal() and int(version) < VERSION_BEFORE:
        raise StartError(
            f"the streams were written by an older Moorline (layout {version}), whose files this one does "
            "not read: start that one, or move the folder streams away"
        )
    shards = fields.get("shards", "")
    found = int(shards) if shards.isdecimal() else 0
    return found if found <= STREAM_SHARDS_MAX else 0


def read_home(disk: Disk) -> str:
    """What the node of these streams is known by, whatever it is called; empty if nobody can tell."""
    home = _fields(disk).get("node", "")
    return home if NODE_NAME.fullmatch(home) else ""


def read_owner(disk: Disk) -> bytes | None:
    """The id of the node whose streams they are; None if nobody can tell."""
    with contextlib.suppress(Malformed):
        return id_of(_fields(disk).get("id", ""))
    return None


def _fields(disk: Disk) -> dict[str, str]:
    text = read_all(disk, PATH).decode(errors="replace")
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def write_layout(
    disk: Disk, node: str, shards: int, owner: bytes = NO_OWNER, *, has_deleted: bool = False
) -> None:
    """The home of the node too: a copy of the folder is still of that node."""
    version = VERSION if has_deleted else VERSION_WITHOUT_DELETED
    text = f"node={node} id={text_of(owner)} shards={shards} version={version}\n".encode()
    if read_all(disk, PATH) != text:
        disk.write_whole(PATH, text)


def folder_of(number: int) -> str:
    return f"{number:03}"


def path_of(folder: str, number: int) -> str:
    return f"{folder}/{number:08}"
