"""Room: catalog. Under which account the embedded Postgres runs, and with which rights.

Postgres refuses to run as root. An ordinary user's node runs it as that user. A node that runs as
root gives it the system account `moorline`, and where a folder on the way is closed to others (such
as /root) one capability that lets it pass, so that no mode of any folder has to be changed. In a user
namespace of one account (`unshare -r`) a node is root in name only: there Postgres gets a namespace of its
own, in which the same account has another name.
"""

import asyncio
import os
import pwd
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

import msgspec

from moorline.errors import CatalogUnreachable

ACCOUNT_NAME = "moorline"
ADD_ACCOUNT = (
    *("useradd", "--system", "--no-create-home"),
    *("--shell", "/usr/sbin/nologin", ACCOUNT_NAME),
)
ORDINARY_USER = "or start the node as an ordinary user, or give it a Postgres with --catalog"

# The capabilities' numbers in linux/capability.h.
DAC_OVERRIDE = 1
DAC_READ_SEARCH = 2

NOBODY = 65534
"""What Postgres takes itself for where nobody but a root in name is; the number has a name everywhere."""


class Account(msgspec.Struct, frozen=True):
    """Whom Postgres runs as when the node itself is root."""

    uid: int
    gid: int


async def account_for(folder: Path) -> Account | None:
    """The account for the data folder; None says: as whoever we are."""
    if os.geteuid() != 0 or _is_root_in_name():
        return None
    # The owner of an existing folder is kept: a container built anew may give the name `moorline`
    # another number, and Postgres starts only for the owner of its folder.
    owner = _owner(folder)
    if owner is not None and owner.uid != 0:
        return owner
    return _named() or await _add()


def launch_prefix(
    account: Account | None, death_signal: str, program: Path, folders: Iterable[Path]
) -> list[str]:
    """What goes before `program` on its command line.

    The death signal ends Postgres when the node is killed with kill -9. setpriv sets it after the
    change of user, which would clear it.
    """
    setpriv = shutil.which("setpriv")
    if account is None:
        renamed = _renamed() if _is_root_in_name() else []
        # Without setpriv a leftover Postgres is ended by the next start instead. The signal is set last:
        # the change of names would clear it.
        return [*renamed, setpriv, "--pdeathsig", death_signal] if setpriv else renamed
    if setpriv is None:
        raise CatalogUnreachable(
            "Postgres cannot run as root and the program setpriv is missing: "
            f"install the package util-linux, {ORDINARY_USER}."
        )
    prefix = [setpriv, "--pdeathsig", death_signal, "--clear-groups"]
    prefix += ["--reuid", str(account.uid), "--regid", str(account.gid)]
    capability = _capability(account, program, folders)
    if capability is not None:
        # Without no_setuid_fixup the kernel leaves capabilities out of access(2), by which Postgres
        # checks its own programs.
        prefix += [f"--inh-caps=+{capability}", f"--ambient-caps=+{capability}"]
        prefix += ["--securebits=+no_setuid_fixup"]
    return prefix


def _is_root_in_name() -> bool:
    """Whether we are a root that has no other account to give to anybody."""
    if os.geteuid() != 0:
        return False
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    return sum(int(line.split()[2]) for line in lines) == 1


def _renamed() -> list[str]:
    unshare = shutil.which("unshare")
    if unshare is None:
        raise CatalogUnreachable(
            "Postgres cannot run as root, this namespace has no other account, and the program unshare "
            f"is missing: install the package util-linux, {ORDINARY_USER}."
        )
    return [unshare, "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}"]


def _owner(folder: Path) -> Account | None:
    try:
        found = folder.stat()
    except FileNotFoundError:
        return None
    return Account(found.st_uid, found.st_gid)


def _named() -> Account | None:
    try:
        found = pwd.getpwnam(ACCOUNT_NAME)
    except KeyError:
        return None
    return Account(found.pw_uid, found.pw_gid)


async def _add() -> Account:
    """Makes the system account, once for this machine."""
    try:
        process = await asyncio.create_subprocess_exec(
            *ADD_ACCOUNT,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, output = await process.communicate()
        words = output.decode(errors="replace").strip().replace("\n", "; ")
    except OSError as error:
        words = str(error)
    # Looked up whatever useradd said: another node may have made it at the same moment.
    account = _named()
    if account is None:
        raise CatalogUnreachable(
            f"Postgres cannot run as root and the account {ACCOUNT_NAME} could not be made "
            f"({words}): run `{' '.join(ADD_ACCOUNT)}`, {ORDINARY_USER}."
        )
    return account


def _capability(account: Account, program: Path, folders: Iterable[Path]) -> str | None:
    """The least capability that takes Postgres to its program and folders; None if none is needed.

    It is not given where it is not needed: with it Postgres could read every file.
    """
    executable = _allowed(program, account, stat.S_IRUSR | stat.S_IXUSR)
    ways = {way for path in (program, *folders) for way in path.resolve().parents}
    if executable and all(_allowed(way, account, stat.S_IXUSR) for way in ways):
        return None
    held = _held_capabilities()
    # dac_read_search passes closed folders but runs no closed program (an install with umask 077).
    if executable and held & 1 << DAC_READ_SEARCH:
        return "dac_read_search"
    # Containers rarely hold the first one, and mostly hold this one.
    if held & 1 << DAC_OVERRIDE:
        return "dac_override"
    closed = sorted(str(way) for way in ways if not _allowed(way, account, stat.S_IXUSR))
    raise CatalogUnreachable(
        f"Postgres runs as uid {account.uid} and cannot pass {', '.join(closed or [str(program)])}: "
        f"choose a data folder elsewhere, {ORDINARY_USER}."
    )


def _allowed(path: Path, account: Account, owner_bits: int) -> bool:
    """Whether the account has these rights, given as the owner's bits."""
    found = path.stat()
    if found.st_uid == account.uid:
        wanted = owner_bits
    elif found.st_gid == account.gid:
        wanted = owner_bits >> 3
    else:
        wanted = owner_bits >> 6
    return found.st_mode & wanted == wanted


def _held_capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapPrm:"):
            return int(line.split()[1], 16)
    return 0
