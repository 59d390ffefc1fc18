"""Room: node. SIGHUP: the configuration is read again, and what can change while a node runs is taken.

    SIGHUP ──► read whole, in a thread ──► right ──► what is LIVE is taken, the rest waits for a start
                     └──► wrong: nothing is taken, /healthz says why, and what was there stays

It is read as the start read it, with the same flags and variables. A file that is wrong in one place is wrong
as a whole: half of a change is none that anybody meant.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator

import msgspec

from moorline.config.keys import keys_of
from moorline.config.settings import Config
from moorline.errors import ConfigError
from moorline.node import service_manager

log = logging.getLogger("moorline.node")

LIVE = frozenset(
    {
        "log_level",
        "log_format",
        "tls_certificate",
        "tls_key",
        "tls_client_ca",
        "tls_client_crl",
        "tls_minimum",
        "access.quotas",
        "streams.retention_s",
        "streams.retention_bytes",
    }
)
"""Settings that a reload takes; all others are taken at a start."""


class Reloading:
    """Reads when it is asked to, one reading after the other. `take` gets the settings that are in force."""

    def __init__(
        self, config: Config, read: Callable[[], Config], take: Callable[[Config], None]
    ) -> None:
        self.config = config
        """What is in force."""
        self._read = read
        self._take = take
        self._asked = asyncio.Event()
        self._broken = ""
        self._waiting: list[str] = []

    def ask(self) -> None:
        self._asked.set()

    def problem(self) -> str:
        """For /healthz; empty if nothing is wrong."""
        if self._broken:
            return f"the configuration is not taken, and the one before it stays: {self._broken}"
        return ""

    async def read_forever(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            service_manager.tell_reloading()
            try:
                await self.read()
            except Exception:
                # Without this task no reload would ever come again.
                log.exception("the configuration could not be read")
            service_manager.tell_reloaded(self.status())

    async def read(self) -> None:
        try:
            fresh = await asyncio.to_thread(self._read)
        except ConfigError as error:
            # Its lines are one a mistake.
            self._broken = "; ".join(str(error).split("\n"))
            log.error("the configuration is not taken", extra={"error": self._broken})
            return
        self._broken = ""
        changed = list(_changed(self.config, fresh))
        taken = [name for name in changed if name in LIVE]
        self._waiting = [name for name in changed if name not in LIVE]
        self.config = _with(self.config, fresh, taken)
        self._take(self.config)
        log.info(
            "the configuration is loaded",
            extra={"taken": ",".join(taken), "wait_for_a_start": ",".join(self._waiting)},
        )

    def status(self) -> str:
        if self._broken:
            return self.problem()
        if self._waiting:
            return f"ready; settings that wait for a start: {', '.join(self._waiting)}"
        return "ready"


def _changed(before: Config, after: Config) -> Iterator[str]:
    for name in keys_of(Config):
        if _value(before, name) != _value(after, name):
            yield name


def _value(config: msgspec.Struct, name: str) -> object:
    value: object = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _with(config: Config, fresh: Config, names: list[str]) -> Config:
    """The settings in force, with the named ones of the fresh."""
    for name in names:
        section, dot, key = name.rpartition(".")
        if dot:
            inner = msgspec.structs.replace(getattr(config, section), **{key: _value(fresh, name)})
            config = msgspec.structs.replace(config, **{section: inner})
        else:
            config = msgspec.structs.replace(config, **{key: _value(fresh, name)})
    return config
