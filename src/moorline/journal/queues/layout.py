"""Room: journal/queues. How deep the queues' folders lie, and moving a store to another depth.

    layout.json   {"levels": 4, "moving_to": null}

`moving_to` is there while a move is under way: folders are found at both depths then, and the move goes
on where it stopped. A node does not start on a store that is being moved.
"""

from collections.abc import Callable, Iterator

import msgspec

from moorline.errors import ConfigError, FolderUnusable, Malformed
from moorline.ids import ID_BYTES, id_of
from moorline.journal.disk import Disk, parent
from moorline.journal.queues.folder import path_of

LAYOUT = "layout.json"
TEXT_CHARACTERS = ID_BYTES * 4 // 3
LEVELS_MAX = 8


class Layout(msgspec.Struct, frozen=True):
    levels: int
    moving_to: int | None = None


def read_layout(disk: Disk) -> Layout | None:
    if not disk.exists(LAYOUT):
        return None
    file = disk.open(LAYOUT, create=False)
    try:
        return msgspec.json.decode(file.read_at(0, file.size()), type=Layout)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FolderUnusable(
            f"{LAYOUT} cannot be read ({error}): run `moor journal check --repair`"
        ) from error
    finally:
        file.close()


def check_layout(disk: Disk, levels: int) -> None:
    """Writes the layout of a new store; refuses one of another depth."""
    layout = read_layout(disk)
    if layout is None:
        found = _first_depth(disk)
        if found is None or found == levels:
            disk.write_whole(LAYOUT, msgspec.json.encode(Layout(levels)))
            return
        # It was lost: what the settings say would look for the folders where they are not.
        layout = Layout(found)
    if layout.moving_to is not None:
        raise ConfigError(
            f"the queues are being moved to {layout.moving_to} levels: "
            f"finish with `moor journal migrate --levels {layout.moving_to}`"
        )
    if layout.levels != levels:
        raise ConfigError(
            f"queues.folder_levels is {levels}, but the store has {layout.levels}: set it to "
            f"{layout.levels}, or run `moor journal migrate --levels {levels}`"
        )


def mend_layout(disk: Disk, levels: int) -> str:
    """Writes the layout anew where it cannot be read, or where the tree is of another depth; says why.

    `levels` is taken where no folder shows how deep they lie. A tree of two depths is left alone: a move
    was under way.
    """
    try:
        layout = read_layout(disk)
        why = "says another depth than the folders have"
    except FolderUnusable:
        layout, why = Layout(-1), "cannot be read"
    found = _first_depth(disk)
    if layout is None and found is not None:
        layout, why = Layout(-1), "is missing"
    if layout is None or layout.moving_to is not None:
        return ""
    levels = found if found is not None else levels if layout.levels < 0 else layout.levels
    if layout.levels == levels or any(depth != levels for depth in _depths(disk)):
        return ""
    disk.write_whole(LAYOUT, msgspec.json.encode(Layout(levels)))
    return f"{LAYOUT} {why}: it is written anew, with {levels} levels"


def _first_depth(disk: Disk) -> int | None:
    return next(_depths(disk), None)


def _depths(disk: Disk, path: str = "messages", text: str = "", depth: int = 0) -> Iterator[int]:
    """Of every folder of a queue, wherever it lies, how many levels stand above it."""
    try:
        names = disk.list_folder(path)
    except OSError:
        return  # something else stands there, which says nothing of the depth
    for name in names:
        if queue_of_folder(text + name) is not None:
            yield depth
        elif len(name) == 2 and depth < LEVELS_MAX:
            yield from _depths(disk, f"{path}/{name}", text + name, depth + 1)


def queue_of_folder(text: str) -> bytes | None:
    """The id that the names of a folder and of those above it make; None if they make none."""
    try:
        return id_of(text) if len(text) == TEXT_CHARACTERS else None
    except Malformed:
        return None


def folders(disk: Disk, levels: int) -> Iterator[bytes]:
    """The ids of all queues that have a folder at that depth."""
    yield from _folders(disk, "messages", "", levels)


def _folders(disk: Disk, path: str, text: str, levels: int) -> Iterator[bytes]:
    try:
        names = disk.list_folder(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if levels and len(name) == 2:
            yield from _folders(disk, f"{path}/{name}", text + name, levels - 1)
        elif not levels and len(text + name) == TEXT_CHARACTERS:
            yield id_of(text + name)


def migrate(disk: Disk, levels: int, moved: Callable[[int], None]) -> int:
    """Moves every folder to the new depth; `moved` hears the count so far. May be called again."""
    layout = read_layout(disk) or Layout(levels)
    if layout.levels == levels and layout.moving_to is None:
        return 0
    old = layout.levels
    disk.write_whole(LAYOUT, msgspec.json.encode(Layout(old, levels)))
    for queue_id in folders(disk, old):
        disk.make_folders(parent(path_of(queue_id, levels)))
    # Or a power cut could keep a move, but not the folder that it went to.
    disk.sync_all()
    count = 0
    for queue_id in folders(disk, old):
        source, target = path_of(queue_id, old), path_of(queue_id, levels)
        disk.rename(source, target)
        count += 1
        moved(count)
    disk.sync_all()
    _remove_empty(disk, "messages", old)
    disk.write_whole(LAYOUT, msgspec.json.encode(Layout(levels)))
    return count


def _remove_empty(disk: Disk, path: str, levels: int) -> bool:
    """Removes the two-character folders that nothing is in any more."""
    if not levels or not disk.exists(path):
        return False
    empty = True
    for name in disk.list_folder(path):
        below = f"{path}/{name}"
        if len(name) == 2 and disk.is_folder(below) and _is_or_gets_empty(disk, below, levels):
            disk.remove_folder(below)
        else:
            empty = False
    return empty


def _is_or_gets_empty(disk: Disk, path: str, levels: int) -> bool:
    return not disk.list_folder(path) or _remove_empty(disk, path, levels - 1)
