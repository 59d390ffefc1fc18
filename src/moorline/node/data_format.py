"""Room: node. Which formats a data folder has: the file `format`, one number for all that is in it.

    moorline-data 1

It is looked at before anything else is read, so that a program never takes what a newer one wrote for
damage. A folder without the file is of a version before it. The number grows with any change by which an
earlier program would read a file of the folder wrongly, or pass it over: docs/formats.md has them all. The
catalog has numbers of its own, those of its migrations.
"""

from pathlib import Path

from moorline.errors import FolderUnusable, FormatTooNew

NAME = "format"
NEWEST = 1
BEFORE = 0
"""Of a folder that no version wrote that knew of this file."""

_WORD = "moorline-data"
RESTORING = "moorline-restoring 1\n"
"""In place of the number, as long as a restore is not done: no program of any version takes it."""


def check_format(folder: Path) -> int:
    """The number of the folder; `FormatTooNew` where this program must not touch it."""
    file = folder / NAME
    try:
        text = file.read_text("ascii", "replace")
    except FileNotFoundError:
        return BEFORE
    except OSError as error:
        raise FolderUnusable(f"{file} cannot be read: {error.strerror}") from error
    if text == RESTORING:
        raise FolderUnusable(
            f"a restore into {folder} did not come to its end: remove the folder, and restore again"
        )
    word, _, number = text.strip().partition(" ")
    # A number that is far too long is no number, and none that int() should look at.
    if word != _WORD or not number.isdecimal() or len(number) > 9:
        raise FolderUnusable(
            f'{file} does not say which formats the folder has: it should be "{_WORD} {NEWEST}". Put it '
            "back from a backup, or remove it if no newer Moorline ever ran here"
        )
    if int(number) > NEWEST:
        raise FormatTooNew(
            f"{folder} was written by a newer Moorline (format {number}, this one knows up to {NEWEST}): "
            "start that one, or choose another --data. Nothing was changed"
        )
    return int(number)


def text_of_format() -> str:
    return f"{_WORD} {NEWEST}\n"
