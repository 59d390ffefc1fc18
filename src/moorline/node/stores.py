"""Room: node. Which stores a data folder has had: one that is removed whole takes its own manifest with it.

    node.stores    a line for each, as `streams`

The file is written when a store is first there, and never made shorter. So a start and `moor journal check`
can tell a folder that lost a store from one that never had it.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

from moorline.node.folder import write_durably

log = logging.getLogger("moorline.node")

NOTE = "node.stores"


def missing_stores(folder: Path) -> list[str]:
    """Those that were there and are not; what cannot be read of the note is not known."""
    return [name for name in _noted(folder) if not (folder / name).is_dir()]


def tell_of_missing(folder: Path) -> list[str]:
    """What a start says of those, in the log and wherever the node tells its problems."""
    texts = []
    for name in missing_stores(folder):
        text = f"{folder / name} was gone at the start, with all messages that were in it"
        log.error("%s: stop the node and bring it back from a copy, if there is one", text)
        texts.append(text)
    return texts


def note_stores(folder: Path, names: Iterable[str]) -> None:
    """Those are there from now on. On a full disk the next start notes them."""
    noted = _noted(folder)
    fresh = [name for name in names if name not in noted]
    if fresh:
        try:
            write_durably(folder / NOTE, "".join(f"{name}\n" for name in (*noted, *fresh)))
        except OSError as error:
            log.warning("the stores of this folder cannot be noted", extra={"error": str(error)})


def _noted(folder: Path) -> list[str]:
    try:
        return (folder / NOTE).read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
