"""Room: client. A publisher of live values.

    async with moorline.Publisher("moor://127.0.0.1:7411") as publisher:
        temperature = publisher.publish("/oslo/temperature", 4.5)
        temperature.update(4.6)
        await publisher.commit()

What it has is told to every resolver, and found there; the values themselves go straight from here to whoever
subscribes. Design: docs/design/resolver.md.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

import msgspec

from moorline.client.credentials import NO_PROOF, ClientProof, prepared
from moorline.client.resolver import resolvers_of
from moorline.client.resolver_cluster import most_telling, with_address
from moorline.client.values.cluster import Cluster
from moorline.client.values.commits import Commits
from moorline.client.values.door import (
    BY_ADDRESS,
    BY_KERBEROS,
    Door,
    Keys,
    SubscriberRules,
    TokenCheck,
)
from moorline.client.values.follower import Follower
from moorline.client.values.frames import check_length, check_value
from moorline.client.values.members import Member
from moorline.client.values.sessions import ValueSessions
from moorline.config.addresses import Address, listen_address
from moorline.core.directory.path import DEFAULT, WRITABLE, check_path
from moorline.core.values.board import Board
from moorline.errors import AlreadyThere, ConfigError, MoorlineError, NotFound, Referred
from moorline.limits import (
    HELLO_TIMEOUT_MS,
    KEEPALIVE_MS,
    OUTLET_BATCHES_MAX,
    OUTLET_BYTES_MAX,
    PUBLISHER_CONNECTIONS_MAX,
    VALUE_HEARTBEAT_MS,
)
from moorline.net.authentication import BY_CERTIFICATE, BY_NOTHING, Authentication
from moorline.net.caller import Caller, open_caller
from moorline.net.kerberos import KerberosService
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.tasks import Tasks
from moorline.net.tls import server_context
from moorline.version import SOFTWARE
from moorline.wire.link import Welcome
from moorline.wire.message import Message
from moorline.wire.resolver import OpenPublisher, PublisherOpened
from moorline.wire.value import publisher_decoder

log = logging.getLogger("moorline.client")

Writer = Callable[[Any, str], Any]
"""Hears what a subscriber writes back, and its principal; what it returns, or awaits, is the receipt."""
Make = Callable[[str], Any]
"""Makes the value of a path below a default, or awaits it; raises `NotFound` if there is none."""


class PublisherSettings(msgspec.Struct, frozen=True):
    """What rarely differs."""

    heartbeat_ms: int = VALUE_HEARTBEAT_MS
    hello_timeout_ms: int = HELLO_TIMEOUT_MS
    keepalive_ms: int = KEEPALIVE_MS
    subscribers_max: int = PUBLISHER_CONNECTIONS_MAX
    batches_max: int = OUTLET_BATCHES_MAX
    """Batches that wait for one subscriber before it is slow."""
    bytes_max: int = OUTLET_BYTES_MAX
    priority: int = 1
    """0 is taken before 1, and 1 before 2."""


class PublishedValue:
    """One value, as its publisher has it."""

    __slots__ = ("_publisher", "id", "is_on_demand", "path", "writer")

    def __init__(
        self,
        publisher: "Publisher",
        one: int,
        path: str,
        writer: Writer | None,
        *,
        is_on_demand: bool,
    ) -> None:
        self._publisher = publisher
        self.is_on_demand = is_on_demand
        """Below a default, and forgotten when nobody follows it any more."""
        self.id = one
        self.path = path
        self.writer = writer

    def update(self, value: Any) -> None:
        """Seen by subscribers behind the next commit."""
        self._publisher.board.update(self.id, value)

    @property
    def value(self) -> Any:
        """As it was committed."""
        return self._publisher.board.value_of(self.id)

    @property
    def subscribers(self) -> int:
        return len(self._publisher.board.followers_of(self.id))

    def unpublish(self) -> None:
        self._publisher.unpublish(self)


class MemberFacts(msgspec.Struct, frozen=True):
    """How one resolver stands to what is published."""

    address: str
    state: str
    is_current: bool
    is_degraded: bool
    why: str
    refused: int
    code: str = ""
    """Of the error behind that, as DENIED, UNTRUSTED or UNREACHABLE; empty where there is none."""


class Publisher:
    """Publishes values, and gives them to whoever subscribes and may."""

    def __init__(
        self,
        resolvers: str | Sequence[str],
        *,
        listen: str = "tcp://127.0.0.1:0",
        advertise: str = "",
        proof: ClientProof = NO_PROOF,
        ca: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        keytab: Path | None = None,
        service: str = "",
        anonymous: bool | None = None,
        settings: PublisherSettings | None = None,
        on_degraded: Callable[[MemberFacts], None] | None = None,
    ) -> None:
        """`resolvers` is `moor://HOST,HOST…` or a list of addresses. Subscribers come to `listen`; others are
        told `advertise`, if that is another one.

        On a `tls://` address `certificate` and `key` are shown, and with `ca` subscribers prove themselves by
        certificates; `anonymous` says whether such without any are taken (on `tcp://`, where there are no
        others, they are). With a `keytab` subscribers prove themselves by Kerberos to `service`, a principal
        such as publisher/HOST@REALM, and in no other way; what they say and hear is wrapped.
        """
        self.settings = settings or PublisherSettings()
        self._listen = _address("listen", listen)
        self._advertise = _address("advertise", advertise) if advertise else None
        self._proof = proof
        self._ca, self._certificate, self._key = ca, certificate, key
        if bool(keytab) != bool(service):
            raise ConfigError("keytab and service go together: whose keys are they?")
        self._kerberos = KerberosService(keytab, service) if keytab else None
        self._rules = SubscriberRules()
        self._on_degraded = on_degraded
        self.instance = secrets.token_bytes(16)
        self.board: Board[Follower] = Board()
        self._commits = Commits(self.board)
        self.values: dict[int, PublishedValue] = {}
        self.defaults: dict[str, Make] = {}
        self.keys = Keys()
        self.tokens = TokenCheck(self.instance)
        self._mechanisms = self._taken(anonymous)
        self._cluster = Cluster(resolvers_of(resolvers), self, Random(secrets.randbits(64)))
        self._sessions = ValueSessions(self)
        self._listeners: Listeners | None = None
        self._address: Address | None = None
        self._changes: dict[str, int | None] = {}
        self._news = asyncio.Event()
        self._tasks = Tasks("the heartbeat of a publisher has failed")
        self._is_closed = False

    # --- opening and closing ----------------------------------------------------------------------

    async def open(self) -> "Publisher":
        admission = Admission(
            anonymous="everywhere" if BY_NOTHING in self._mechanisms else "never",
            connections_max=self.settings.subscribers_max,
            hello_timeout_ms=self.settings.hello_timeout_ms,
            keepalive_ms=self.settings.keepalive_ms,
        )
        if self._kerberos is not None:
            await self._kerberos.check()
        self._listeners = Listeners(admission, rules=self._rules)
        tls = None
        if self._listen.scheme == "tls":
            shown = str(self._certificate)
            tls = server_context(shown, str(self._key or shown), str(self._ca or ""))
        served = NativeProtocol(self._sessions.handlers, self._welcome, publisher_decoder)
        door = Door(self.keys, self._rules, self._kerberos)
        authentication = Authentication((*self._mechanisms, BY_ADDRESS), door)
        (heard, *_) = await self._listeners.open(self._listen, tls, served, authentication)
        self._address = self._advertise or heard
        self._cluster.start()
        self._tasks.spawn(self._sessions.beat_forever())
        return self

    async def close(self) -> None:
        """Entries leave all resolvers first, then subscribers hear the end."""
        if self._is_closed:
            return
        self._is_closed = True
        self._tasks.cancel()
        await self._cluster.close()
        self._sessions.close()
        if self._listeners is not None:
            await self._listeners.close()

    async def __aenter__(self) -> "Publisher":
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def address(self) -> str:
        """Where subscribers are told to come."""
        return str(self._address or "")

    # --- publishing -------------------------------------------------------------------------------

    def publish(self, path: str, value: Any, *, writer: Writer | None = None) -> PublishedValue:
        """A new value. With a `writer` subscribers may write back, if they are granted that."""
        check_path(path)
        if self.board.id_of(path) is not None:
            raise AlreadyThere(f"{path} is published here already: update it")
        check_value(value)
        check_length(value)
        return self._published(path, value, writer)

    def _published(
        self, path: str, value: Any, writer: Writer | None, *, is_on_demand: bool = False
    ) -> PublishedValue:
        one = self.board.publish(path, value)
        made = PublishedValue(self, one, path, writer, is_on_demand=is_on_demand)
        self.values[one] = made
        if not is_on_demand:
            self._change(path, WRITABLE if writer is not None else 0)
        return made

    def publish_all(self, values: Iterable[tuple[str, Any]]) -> list[PublishedValue]:
        """Many at once, or none of them."""
        given = list(values)
        seen: set[str] = set()
        for path, value in given:
            check_path(path)
            if path in seen or self.board.id_of(path) is not None:
                raise AlreadyThere(f"{path} is published here already: update it")
            seen.add(path)
            check_value(value)
            check_length(value)
        return [self._published(path, value, None) for path, value in given]

    def unpublish(self, value: PublishedValue) -> None:
        """Its subscribers hear that it is gone."""
        if self.values.pop(value.id, None) is None:
            raise NotFound(f"{value.path} is not published here any more")
        for follower in self.board.unpublish(value.id):
            follower.end([value.id], "UNPUBLISHED")
        if not value.is_on_demand:
            self._change(value.path, None)

    def default(self, path: str, make: Make) -> None:
        """Whatever is asked for below this path is made when it is first subscribed to, and forgotten when
        nobody is any more."""
        check_path(path)
        if path in self.defaults:
            raise AlreadyThere(f"{path} is a default here already")
        if self.board.id_of(path) is not None:
            raise AlreadyThere(f"{path} is published here: a default is at a path of its own")
        self.defaults[path] = make
        self._change(path, DEFAULT)

    def made(self, path: str, value: Any) -> PublishedValue:
        """A value below a default: no resolver is told of it."""
        check_value(value)
        check_length(value)
        return self._published(path, value, None, is_on_demand=True)

    def abandoned(self, one: int) -> None:
        """Nobody follows it any more: what was made on demand is forgotten."""
        value = self.values.get(one)
        if value is not None and value.is_on_demand:
            del self.values[one]
            self.board.unpublish(one)

    def update_all(self, ids: Sequence[int], values: Sequence[Any]) -> None:
        """Many updates at once, by the ids of values."""
        self.board.update_all(ids, values)

    async def commit(self, timeout_s: float | None = None) -> int:
        """Makes all updates since the last one visible, as one batch; returns how many got it.

        Without a timeout it never waits: who has no room is folded or cut. With one it waits for room, and
        cuts whoever has none by then, or has left something unread for longer.
        """
        return await self._commits.commit(timeout_s)

    # --- resolvers --------------------------------------------------------------------------------

    def _change(self, path: str, flags: int | None) -> None:
        """Told to the resolvers behind this turn of the loop, with what else changes in it."""
        if not self._changes:
            asyncio.get_running_loop().call_soon(self._tell_changes)
        self._changes[path] = flags

    def _tell_changes(self) -> None:
        changes, self._changes = self._changes, {}
        if not self._is_closed:
            self._cluster.change(changes)
        # Who waits for the resolvers looks again: what came and went in one turn is no change to them.
        self._news.set()

    async def replicated(self, timeout_s: float | None = None) -> list[MemberFacts]:
        """Waits until every resolver has all that is published, or could not be reached; how each stands."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._changes or not all(one.is_settled for one in self._cluster.everybody()):
                    self._news.clear()
                    await self._news.wait()
        return self.members

    async def current(self, timeout_s: float | None = None) -> None:
        """Waits until every resolver has all that is published, however long one is away."""
        async with asyncio.timeout(timeout_s):
            while self._changes or not all(one.is_current for one in self._cluster.everybody()):
                self._news.clear()
                await self._news.wait()

    def refused(self) -> dict[str, str]:
        """Paths that some resolver does not take, with what it says; not those that it refers elsewhere."""
        return {
            path: code
            for member in self._cluster.everybody()
            for path, code in member.view.refused.items()
            if code != Referred.code
        }

    @property
    def members(self) -> list[MemberFacts]:
        return [_facts_of(member) for member in self._cluster.everybody()]

    def failure(self) -> MoorlineError | None:
        """Why no resolver takes us, where that is more than that none is there: a proof that fails, a right
        that none gives."""
        everybody = self._cluster.everybody()
        errors = {place: one.error for place, one in enumerate(everybody) if one.error is not None}
        telling = most_telling(errors)
        if telling is None:
            return None
        member, error = telling
        return with_address(error, everybody[member].address)

    # --- what members ask of us (client.values.members.Home) -----------------------------------------

    async def call(self, address: Address, pushed: Callable[[list[Message]], None]) -> Caller:
        credentials = await prepared(self._proof, address)
        return await open_caller(
            address,
            lambda: Caller(
                f"{SOFTWARE} publisher",
                hello_timeout_ms=self.settings.hello_timeout_ms,
                keepalive_ms=self.settings.keepalive_ms,
                pushed=pushed,
                credentials=credentials,
            ),
            timeout_ms=self.settings.hello_timeout_ms,
            ca=self._ca,
            certificate=self._certificate,
            key=self._key,
        )

    def login(self, call: int, key: bytes) -> OpenPublisher:
        assert self._address is not None, "it listens first"
        return OpenPublisher(
            call,
            self.instance,
            str(self._address),
            self._mechanisms,
            key,
            self.settings.priority,
            self._kerberos.service if self._kerberos is not None else "",
        )

    def expect(self, key: bytes) -> None:
        self.keys.expect(key)

    def forget(self, key: bytes) -> None:
        self.keys.forget(key)

    def opened(self, member: Member, opened: PublisherOpened) -> None:
        self.tokens.opened(member, opened)
        self._rules.told(opened)

    def rights_changed(self, member: Member, at_s: int) -> None:
        self.tokens.rights_changed(member, at_s)
        self._sessions.judge_soon(member)

    def news(self, member: Member) -> None:  # noqa: ARG002  (whoever waits looks at all)
        self._news.set()

    def degraded(self, member: Member) -> None:
        if self._on_degraded is not None:
            self._on_degraded(_facts_of(member))

    def judges(self) -> list[Member]:
        """Resolvers that can be asked about subscribers, in any order."""
        return self._cluster.everybody()

    # --- inside -----------------------------------------------------------------------------------

    def _welcome(self, version: int, keepalive_ms: int) -> Welcome:
        return Welcome(version, "", f"{SOFTWARE} publisher", ("publisher",), keepalive_ms)

    def _taken(self, anonymous: bool | None) -> tuple[str, ...]:
        is_tls = self._listen.scheme == "tls"
        if self._kerberos is not None:
            if anonymous:
                raise ConfigError("with a keytab subscribers prove themselves: leave anonymous out")
            return (BY_KERBEROS,)
        if is_tls and not self._certificate:
            raise ConfigError(
                f"listen = {self._listen}: give the certificate and key to show there"
            )
        has_proofs = is_tls and bool(self._ca)
        if not has_proofs and anonymous is False:
            raise ConfigError(
                "nobody could subscribe: anonymous is False, and no other proof is taken"
            )
        takes_anonymous = not has_proofs if anonymous is None else anonymous
        return (
            *([BY_CERTIFICATE] if has_proofs else []),
            *([BY_NOTHING] if takes_anonymous else []),
        )


def _facts_of(member: Member) -> MemberFacts:
    return MemberFacts(
        str(member.address),
        member.state,
        member.is_current,
        member.is_degraded,
        member.why,
        len(member.view.refused),
        member.error.code if member.error is not None else "",
    )


def _address(name: str, text: str) -> Address:
    try:
        return listen_address(text)
    except ValueError as error:
        raise ConfigError(f"{name} = {text!r}: {error}") from error
