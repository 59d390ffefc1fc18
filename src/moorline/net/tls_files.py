"""Room: net. The files of a node's TLS: read at the start, and again whenever they change.

    looked at ──► changed ──► the same in the next look ──► loaded ──► used for new links
                     └──► changes still                       └──► broken: what was loaded before stays

Links that are open keep what they began with; whoever watches `changed` asks `trust` whether their
certificates are still taken. Files are read and stat'ed in a thread: a folder on a network may hang.
"""

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Self

import msgspec

from moorline.config.settings import Config
from moorline.errors import ConfigError
from moorline.limits import TLS_EXPIRY_LOG_MS, TLS_EXPIRY_WARNING_MS, TLS_FILES_LOOK_MS
from moorline.net.clock import wall_ms
from moorline.net.peer_certificate import Trust, load_certificates, load_trust, milliseconds
from moorline.net.pem import Pem
from moorline.net.tls import server_context

log = logging.getLogger("moorline.net")

Seen = tuple[tuple[int, int, int, int] | str, ...]
"""Of each file what changes with it, or why it cannot be looked at."""


class TlsPaths(msgspec.Struct, frozen=True, kw_only=True):
    """Which files, as the settings name them; an empty path is none."""

    certificate: str
    key: str
    client_ca: str = ""
    node_ca: str = ""
    client_crl: str = ""
    minimum: str = "1.2"

    @staticmethod
    def of(config: Config) -> "TlsPaths":
        return TlsPaths(
            certificate=config.tls_certificate,
            key=config.tls_key,
            client_ca=config.tls_client_ca,
            node_ca=config.tls_node_ca,
            client_crl=config.tls_client_crl,
            minimum=config.tls_minimum,
        )

    def files(self) -> list[str]:
        named = (self.certificate, self.key, self.client_ca, self.node_ca, self.client_crl)
        return [path for path in named if path]


class End(msgspec.Struct, frozen=True):
    """Something by which people are let in, and when it ends."""

    at_ms: int
    what: str
    remedy: str
    warning_ms: int
    """How long before it is told."""

    def words(self, now_ms: int) -> str:
        """Empty while there is time."""
        if now_ms < self.at_ms - self.warning_ms:
            return ""
        day = datetime.fromtimestamp(self.at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M")
        verb = "ends" if now_ms < self.at_ms else "ended"
        return f"{self.what} {verb} on {day} UTC: {self.remedy}"


class Loaded(msgspec.Struct, frozen=True):
    """What one reading of the files gave."""

    context: ssl.SSLContext
    trust: Trust
    ends: list[End]


class TlsFiles:
    """`async with TlsFiles(paths) as files:` and then `files.context` for every new link."""

    def __init__(
        self,
        paths: TlsPaths,
        *,
        changed: Callable[[], None] = lambda: None,
        now_ms: Callable[[], int] = wall_ms,
        look_ms: int = TLS_FILES_LOOK_MS,
    ) -> None:
        self._paths = paths
        self._changed = changed
        self._now_ms = now_ms
        self._look_ms = look_ms
        self._loaded: Loaded | None = None
        self._seen: Seen = ()
        """What was tried last, with or without success."""
        self._broken = ""
        self._told_ms: dict[str, int] = {}
        """By words in the log: when."""
        self._wanted = asyncio.Event()
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.loads = 0
        """How often the files were taken."""

    async def __aenter__(self) -> Self:
        """Raises `ConfigError` if the files cannot be used: at a start nothing is there to keep."""
        self._seen = await asyncio.to_thread(_look_at, self._paths)
        self._take(await asyncio.to_thread(load_files, self._paths))
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    @property
    def context(self) -> ssl.SSLContext:
        """For the next link."""
        assert self._loaded is not None, "entered by async with"
        return self._loaded.context

    @property
    def trust(self) -> Trust:
        """Whose certificates are taken now."""
        assert self._loaded is not None, "entered by async with"
        return self._loaded.trust

    def problem(self) -> str:
        """What is wrong just now, for /healthz; empty if nothing is."""
        if self._broken:
            return f"{self._broken}; what was loaded before is still used"
        assert self._loaded is not None, "entered by async with"
        now_ms = self._now_ms()
        return "; ".join(filter(None, (end.words(now_ms) for end in self._loaded.ends)))

    def rename(self, paths: TlsPaths) -> None:
        """From the next reading on these are the files; what they hold is taken if all of it is right."""
        if paths != self._paths:
            self._paths = paths
            self._wanted.set()

    def reload_soon(self) -> None:
        """The operator says so, with SIGHUP: whatever the files look like, they are read now."""
        self._wanted.set()

    async def reload(self) -> str:
        """Reads the files now; what is wrong with them, or nothing."""
        async with self._turn:
            # Looked at before it is read: what is written meanwhile is a change that the next look finds.
            self._seen = await asyncio.to_thread(_look_at, self._paths)
            try:
                loaded = await asyncio.to_thread(load_files, self._paths)
            except ConfigError as error:
                self._broken = str(error)
                log.error("TLS files are not taken", extra={"error": self._broken})
                return self._broken
            self._broken = ""
            self._take(loaded)
        log.info("TLS files are loaded", extra={"loads": self.loads})
        self._changed()
        return ""

    async def _watch(self) -> None:
        """Until it is cancelled. A mistake of ours in here must not end it: a renewal would never be seen."""
        before = self._seen
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._look_ms / 1_000):
                    await self._wanted.wait()
            try:
                if self._wanted.is_set():
                    self._wanted.clear()
                    await self.reload()
                seen = await asyncio.to_thread(_look_at, self._paths)
                # Two looks that agree: a certificate and its key are two files, written one after the other.
                if seen == before and seen != self._seen:
                    await self.reload()
                before = seen
                self._tell_of_ends()
            except Exception:
                log.exception("the files of TLS could not be looked at")

    def _take(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self.loads += 1
        self._tell_of_ends()

    def _tell_of_ends(self) -> None:
        """A line when something is about to end, one when it has ended, and one a day between."""
        assert self._loaded is not None, "entered by async with"
        now_ms = self._now_ms()
        ending = {words for end in self._loaded.ends if (words := end.words(now_ms))}
        told_ms = {words: at_ms for words, at_ms in self._told_ms.items() if words in ending}
        for words in sorted(ending):
            if words not in told_ms or now_ms - told_ms[words] >= TLS_EXPIRY_LOG_MS:
                log.warning(words)
                told_ms[words] = now_ms
        self._told_ms = told_ms


def load_files(paths: TlsPaths) -> Loaded:
    """In a thread. Raises `ConfigError` if a start would."""
    context = server_context(
        paths.certificate,
        paths.key,
        paths.client_ca,
        node_ca=paths.node_ca,
        client_crl=paths.client_crl,
        minimum=paths.minimum,
    )
    trust = load_trust(paths.client_ca, paths.node_ca, paths.client_crl)
    return Loaded(context, trust, _ends(paths, trust))


def _ends(paths: TlsPaths, trust: Trust) -> list[End]:
    own = Pem("tls_certificate", paths.certificate)
    leaf = load_certificates(own)[0]
    ends = [
        End(
            milliseconds(leaf.not_valid_after_utc),
            f"the certificate of this node ({own})",
            "renew it; it is read again by itself",
            TLS_EXPIRY_WARNING_MS,
        )
    ]
    for authorities in (trust.clients, trust.nodes):
        if authorities is not None:
            ends += [
                End(
                    at_ms,
                    f"the authority {name} ({authorities.file})",
                    "put its next certificate into the file; its clients are refused behind that",
                    TLS_EXPIRY_WARNING_MS,
                )
                for at_ms, name in authorities.ends
            ]
    # Lists are made anew every few days, some every hour: only one that is out of date is told.
    ends += [
        End(
            revoked.next_update_ms,
            f"the revocation list of {revoked.issuer} (tls_client_crl: {paths.client_crl!r})",
            "put a newer one in its place; until then all certificates of that authority are refused",
            0,
        )
        for revoked in trust.revoked
        if revoked.next_update_ms is not None
    ]
    return ends


def _look_at(paths: TlsPaths) -> Seen:
    """In a thread. A link is followed: certificates are often replaced by turning one to another folder."""
    return tuple(_stat_of(path) for path in paths.files())


def _stat_of(path: str) -> tuple[int, int, int, int] | str:
    try:
        found = os.stat(path)
    except OSError as error:
        return str(error)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
