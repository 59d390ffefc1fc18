"""Room: net. Kerberos 5 by GSSAPI: the steps of both ends, and the keys with which a link is wrapped then.

    KerberosService        of whoever listens: a keytab, and the name of the service that is in it
    └── KerberosExchange   of one link that has come: tokens in, tokens out, and then a principal
    KerberosCall           of one link that is opened: a ticket for the service, and the tokens

Neither knows what listens or calls. Every step runs in a thread with a time limit (net.steps); wrapping does
not, since its order is the order of sending. docs/design/wire.md has the rounds and what holds.

The package gssapi is an extra: where it is not installed, whoever needs it is told so by name.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from moorline.core.proof import ProofAccepted, ProofContinues, ProofRefused
from moorline.errors import ConfigError, KerberosError, NotInstalled, Tampered, WireError
from moorline.limits import (
    KERBEROS_CLOCK_SKEW_S,
    KERBEROS_KDC_MS_MAX,
    KERBEROS_STEP_MS_MAX,
    KERBEROS_STEPS_AT_ONCE_MAX,
)
from moorline.net.authentication import Verdict
from moorline.net.kerberos_errors import OF_ACCEPTOR, OF_INITIATOR, OF_KEYTAB, words_of
from moorline.net.steps import Hangs, Steps

MECHANISM: Final = "gssapi"
SERVICE: Final = "moorline"
"""What stands before the host in the name of a service, where no other is given."""

GOES_ON, COMPLETE = b"\x00", b"\x01"
"""What a challenge begins with: behind a complete one all is wrapped."""

ACCEPTING: Final = Steps("moor-kerberos-accept", KERBEROS_STEPS_AT_ONCE_MAX)
_INITIATING = Steps("moor-kerberos-init", KERBEROS_STEPS_AT_ONCE_MAX)
"""Their own: who waits for a KDC keeps nobody waiting that comes with a ticket."""


def library() -> ModuleType:
    """The package gssapi; `NotInstalled` says how to get it."""
    try:
        import gssapi
    except (ImportError, OSError) as error:
        raise NotInstalled(
            f"Kerberos needs the package gssapi ({error}): apt install python3-gssapi for Debian's Python, "
            "or, with gcc and libkrb5-dev, in Moorline's folder pip install -c constraints.txt '.[kerberos]'"
        ) from None
    return gssapi  # type: ignore[no-any-return]  # an extra: its types are not known everywhere


class Keys:
    """The keys of one link (`net.records.Wrapping`)."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._failed = library().exceptions.GSSError

    def wrap(self, data: bytes, /) -> bytes:
        try:
            made = self._context.wrap(data, True)
        except self._failed as error:
            raise WireError(f"nothing can be wrapped any more: {error}") from None
        if not made.encrypted:
            raise WireError("the library did not encrypt")
        return bytes(made.message)

    def unwrap(self, token: bytes, /) -> bytes:
        try:
            found = self._context.unwrap(token)
        except self._failed as error:
            raise Tampered(f"what came is not the next that was sent: {error}") from None
        # One that is signed and can be read on its way is as good as none.
        if not found.encrypted:
            raise Tampered("what came is not encrypted")
        return bytes(found.message)


class KerberosService:
    """What a listener takes tickets for. Without its name any key of the keytab would do: give it its own."""

    def __init__(
        self, keytab: Path, service: str, *, clock_skew_s: int = KERBEROS_CLOCK_SKEW_S
    ) -> None:
        """`service` is a whole principal: `moorline/HOST@REALM`."""
        self.service = service
        self.keytab = keytab
        self.clock_skew_s = clock_skew_s

    async def check(self) -> None:
        """Whether the keytab can be used: before anybody comes. `ConfigError` says what is wrong."""
        failed = library().exceptions.GSSError
        check_keytab_file(self.keytab)
        try:
            await ACCEPTING.run(self.credentials, KERBEROS_STEP_MS_MAX)
        except failed as error:
            raise ConfigError(
                f"{self.keytab}: it cannot be used for {self.service}: {words_of(error, {})}: look at it "
                "with `moor keytab show`"
            ) from None
        except Hangs:
            raise ConfigError(f"{self.keytab}: it cannot be read in time") from None

    def credentials(self) -> Any:
        gssapi = library()
        return gssapi.Credentials(
            name=gssapi.Name(self.service, gssapi.NameType.kerberos_principal),
            usage="accept",
            mechs=self.mechanisms(),
            store={"keytab": f"FILE:{self.keytab}"},
        )

    def mechanisms(self) -> list[Any]:
        """In what tokens may come."""
        return [library().MechType.kerberos]

    def context(self) -> Any:
        return library().SecurityContext(creds=self.credentials(), usage="accept")


class KerberosExchange:
    """One link that has come (`net.authentication.Exchange`, and it wraps)."""

    def __init__(self, service: KerberosService, principal_of: Callable[[str], str]) -> None:
        """`principal_of` makes a principal of `user@REALM`; ValueError says for the peer why it is none."""
        self._service = service
        self._principal_of = principal_of
        self._context: Any = None
        self._is_complete = False
        self._principal = ""
        self.claimed = ""
        """As Kerberos calls it; proven when the context is complete, but it may be a hello sent again."""

    def has_keys(self) -> bool:
        return self._is_complete

    def wrapping(self) -> Keys:
        assert self._is_complete, "there are no keys yet"
        return Keys(self._context)

    async def check(self, proof: bytes, /) -> Verdict:
        if self._is_complete:
            return await self.confirmed(proof)
        if not proof:
            return ProofRefused("there is no token of Kerberos in it")
        try:
            answer = await ACCEPTING.run(lambda: self._step(proof), KERBEROS_STEP_MS_MAX)
        except library().exceptions.GSSError as error:
            return ProofRefused(f"Kerberos: {words_of(error, OF_ACCEPTOR)}")
        except Hangs:
            return ProofRefused("Kerberos: it cannot be checked now: try again later")
        if not self._context.complete:
            return ProofContinues(GOES_ON + answer)
        refused = self._judge()
        if refused is not None:
            return refused
        self._is_complete = True
        return ProofContinues(COMPLETE + answer, wraps=True)

    async def confirmed(self, proof: bytes) -> Verdict:
        """What came was unwrapped: this is not somebody who has recorded a hello. Others may ask for more."""
        if proof:
            return ProofRefused("Kerberos: nothing was asked")
        return self.accepted(self._principal)

    def accepted(self, principal: str) -> Verdict:
        left_ms = self._left_ms()
        if left_ms <= 0:
            return ProofRefused(f"Kerberos: {OF_ACCEPTOR[32]}")
        return ProofAccepted(principal, left_ms, proven_name=self.claimed)

    def _step(self, token: bytes) -> bytes:
        if self._context is None:
            self._context = self._service.context()
        answer = self._context.step(token)
        # An error of an acceptor is told at the next use, and not by the step.
        _ = self._context.complete
        return bytes(answer or b"")

    def _judge(self) -> ProofRefused | None:
        context = self._context
        missing = missing_flags(context)
        if missing:
            return ProofRefused(f"Kerberos: the context must have {missing}")
        self.claimed = str(context.initiator_name)
        try:
            self._principal = self._principal_of(self.claimed)
        except ValueError as error:
            return ProofRefused(f"Kerberos: {error}")
        if self._left_ms() <= 0:
            return ProofRefused(f"Kerberos: {OF_ACCEPTOR[32]}")
        return None

    def _left_ms(self) -> int:
        """Of the ticket: the library gives an acceptor the skew on top."""
        try:
            return (int(self._context.lifetime) - self._service.clock_skew_s) * 1_000
        except library().exceptions.GSSError:
            return 0


class KerberosCall:
    """One link that is opened (`net.authentication.Credentials`, and it wraps)."""

    mechanism = MECHANISM
    needs_privacy = False

    def __init__(
        self,
        service: str,
        *,
        principal: str = "",
        keytab: Path | None = None,
        ccache: str = "",
        timeout_ms: int = KERBEROS_KDC_MS_MAX,
    ) -> None:
        """Without keytab and cache it is the default cache of the process."""
        self.service = service
        self._principal = principal
        self._keytab = keytab
        self._ccache = ccache
        self._timeout_ms = timeout_ms
        self._context: Any = None
        self._first = b""
        self.is_content = False
        """A node that welcomes us before it has proven itself is not believed."""

    def __repr__(self) -> str:
        return f"KerberosCall({self._principal or 'whoever has the ticket'!r} to {self.service!r})"

    def has_keys(self) -> bool:
        return self.is_content

    def wrapping(self) -> Keys:
        assert self.is_content, "there are no keys yet"
        return Keys(self._context)

    async def prepare(self) -> None:
        """Gets the ticket: before the socket is opened, since a KDC may take longer than a node waits."""
        if self._keytab is not None:
            check_keytab_file(self._keytab)
        self._first = await self._stepped(self._begin)

    async def first(self) -> bytes:
        if not self._first:
            await self.prepare()
        token, self._first = self._first, b""
        return token

    async def answer(self, challenge: bytes, /) -> bytes:
        mark, token = challenge[:1], challenge[1:]
        if self.is_content or mark not in (GOES_ON, COMPLETE):
            raise _failed("the node asked what Kerberos does not ask")
        answer = b""
        if not self._context.complete:
            answer = await self._stepped(lambda: bytes(self._context.step(token) or b""))
        if mark == GOES_ON:
            return answer
        if answer or not self._context.complete:
            raise _failed("the node has not proven that it is the service")
        if missing := missing_flags(self._context):
            raise _failed(f"the context must have {missing}: it has not")
        self.is_content = True
        return b""

    async def _stepped(self, step: Callable[[], bytes]) -> bytes:
        gssapi = library()
        try:
            return await _INITIATING.run(step, self._timeout_ms)
        except gssapi.exceptions.GSSError as error:
            known = OF_KEYTAB if self._keytab is not None else OF_INITIATOR
            raise _failed(f"{self._who()}: {words_of(error, known)}") from None
        except Hangs:
            raise _failed(
                f"{self._who()}: no ticket within {self._timeout_ms} ms: the KDC of the realm does not "
                "answer; is it running, and does krb5.conf name it?"
            ) from None

    def _who(self) -> str:
        whose = f" of {self._keytab}" if self._keytab else f" of {self._ccache or 'the cache'}"
        return f"Kerberos: {self._principal or 'the principal'}{whose} to {self.service}"

    def _begin(self) -> bytes:
        gssapi = library()
        of_principal = gssapi.NameType.kerberos_principal
        credentials = gssapi.Credentials(
            name=gssapi.Name(self._principal, of_principal) if self._principal else None,
            usage="initiate",
            mechs=[gssapi.MechType.kerberos],
            store=self._store() or None,
        )
        self._context = gssapi.SecurityContext(
            name=gssapi.Name(self.service, of_principal),
            creds=credentials,
            usage="initiate",
            mech=gssapi.MechType.kerberos,
            flags=_wanted_flags(),
        )
        return bytes(self._context.step() or b"")

    def _store(self) -> dict[str, str]:
        store: dict[str, str] = {}
        if self._keytab is not None:
            store["client_keytab"] = f"FILE:{self._keytab}"
            # In memory, and one for each: who comes again has its ticket yet, also while no KDC answers.
            store["ccache"] = f"MEMORY:moorline:{self._principal}:{self._keytab}"
        if self._ccache:
            has_kind = ":" in self._ccache and not self._ccache.startswith("/")
            store["ccache"] = self._ccache if has_kind else f"FILE:{self._ccache}"
        return store


def _failed(text: str) -> KerberosError:
    return KerberosError("AUTH", text)


def missing_flags(context: Any) -> str:
    """Which of the properties that a link must have this context has not; empty if all are there."""
    flags = library().RequirementFlag
    missing = [
        name.replace("_", " ")
        for name in _FLAGS
        if getattr(flags, name) not in context.actual_flags
    ]
    if flags.anonymity in context.actual_flags:
        missing.append("a principal")
    return ", ".join(missing)


_FLAGS: Final = (
    "mutual_authentication",
    "confidentiality",
    "integrity",
    "replay_detection",
    "out_of_sequence_detection",
)


def _wanted_flags() -> list[Any]:
    flags = library().RequirementFlag
    return [getattr(flags, name) for name in _FLAGS]


def service_at(host: str, service: str = "") -> str:
    """The principal of whoever listens at that host; `service` in full, or only what stands before the /."""
    if "/" in service or "@" in service:
        return service
    return f"{service or SERVICE}/{host}"


def check_keytab_file(path: Path) -> None:
    """A keytab is a secret as a password is: it must be there, and not everybody's."""
    try:
        mode = path.stat().st_mode
        if not os.access(path, os.R_OK):
            raise PermissionError(13, "it may not be read")
    except OSError as error:
        raise ConfigError(
            f"the keytab {str(path)!r}: {error.strerror}: give one that can be read"
        ) from None
    if stat.S_IMODE(mode) & 0o007:
        raise ConfigError(f"the keytab {str(path)!r}: every user may use it: chmod 600 it")
