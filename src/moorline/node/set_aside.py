"""Room: node. The files of a home that has gone to another node: set aside, never removed.

    DATA/node.moving       while a home is handed over: which home, and how often it had moved
    DATA/moved/HOME-N/     what it left here, behind its Nth move; an operator may remove it

A home's files are renamed one by one, its identity last, so that a start in the middle of it goes on. Without
them the folder is a new one: the next start draws another identity.
"""

import contextlib
import json
import logging
import os
from pathlib import Path

from moorline.node.folder import HOME_ENTRIES, IDENTITY, write_durably
from moorline.node.guests import ASIDE

log = logging.getLogger("moorline.node")

NOTE = "node.moving"


def note_leaving(folder: Path, home: str, moves: int) -> None:
    """Before the home may go: a start that finds it gone knows by this what to do."""
    write_durably(folder / NOTE, json.dumps({"home": home, "moves": moves}) + "\n")


def forget_leaving(folder: Path) -> None:
    (folder / NOTE).unlink(missing_ok=True)


def is_leaving(folder: Path) -> bool:
    """Whether a home was about to be handed over when this folder was last used."""
    # Also where the folder cannot be read, which its start says in its own words.
    return os.path.exists(folder / NOTE)


def set_aside(folder: Path, data: Path) -> Path:
    """The home of `folder` is at another node: its files go to a folder beside. Where they are now.

    `data` is the data folder of the process; `folder` is the same, or that of a guest.
    """
    note = json.loads((folder / NOTE).read_text("ascii"))
    aside = data / ASIDE / f"{note['home']}-{int(note['moves']) + 1}"
    aside.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in (*(one for one in HOME_ENTRIES if one != IDENTITY), IDENTITY):
        with contextlib.suppress(FileNotFoundError):
            os.replace(folder / name, aside / name)
    _sync(aside)
    _sync(folder)
    forget_leaving(folder)
    log.warning(
        "the home of this folder is at another node; its files were set aside, and are in nobody's way",
        extra={"home": note["home"], "folder": str(aside)},
    )
    return aside


def settle(folder: Path, data: Path) -> None:
    """At a start: one that was cut short behind its last renaming left its note."""
    if is_leaving(folder) and not os.path.exists(folder / IDENTITY):
        set_aside(folder, data)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
