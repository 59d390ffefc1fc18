"""Room: catalog. The closed folder in which the embedded Postgres listens.

A unix socket's path is short by force of the kernel. Where the data folder's path is too long the
socket lies in the temporary folder, and `run` in the data folder is a link to it: that is how the
next start finds and removes it after a kill -9.
"""

import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path

from moorline.catalog.account import Account
from moorline.errors import FolderUnusable
from moorline.limits import CATALOG_SOCKET_BYTES_MAX

PORT = 5432  # no TCP port: only the number in the socket's name
SOCKET = f".s.PGSQL.{PORT}"

# Postgres and asyncpg take lists of folders; a comma or quote in the path would split it.
PLAIN_PATH = re.compile(r"[A-Za-z0-9/._+~-]+")


def make_socket_folder(data: Path, account: Account | None) -> Path:
    """An empty folder that only Postgres' account and root can enter."""
    remove_socket_folder(data)
    run = (data / "run").absolute()
    if _fits(run):
        folder = run
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
    else:
        folder = Path(tempfile.mkdtemp(prefix="moorline-"))
        if not _fits(folder):
            folder.rmdir()
            raise FolderUnusable(
                f"the temporary folder {folder.parent} has too long or too odd a path for a unix "
                "socket: set TMPDIR to a short one, such as /tmp."
            )
        run.symlink_to(folder)
    if account is not None:
        os.chown(folder, account.uid, account.gid)
    return folder


def remove_socket_folder(data: Path) -> None:
    """Removes the folder, and the link to it if there is one; files of others are left alone."""
    run = data / "run"
    if not run.is_dir() and not run.is_symlink():
        return
    folder = run.resolve()
    for name in (SOCKET, SOCKET + ".lock"):
        (folder / name).unlink(missing_ok=True)
    # Somebody else's files may be in it, or it may be gone since the machine's last start.
    with suppress(OSError):
        folder.rmdir()
    if run.is_symlink():
        run.unlink()


def _fits(folder: Path) -> bool:
    path = str(folder / SOCKET)
    return len(os.fsencode(path)) <= CATALOG_SOCKET_BYTES_MAX and bool(PLAIN_PATH.fullmatch(path))
