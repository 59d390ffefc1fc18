"""Room: core/access. What the audit trail says of each act, and how a flood of refusals stays a few lines.

    lines = trail.heard(act, now_ms, wall_ms)      at each act
    lines = trail.looked(now_ms)                   from time to time, `due_ms` says when

An operator's act and a change of rights are a line each, at once. Logins, refusals and looks into what
others may read too (`is_look`) may come by the thousand, and are added up where they are alike, that is of
the same principal, proof, act, path, verdict and reason:

    the first one                       a line at once, and a sum begins
    those within AUDIT_SUM_MS of it     one line when the sum ends, with how many, the first and the last time
    the 33rd sum of a principal in AUDIT_SUM_MS     all that is left of it is one sum, act `several`
    the 4,001st sum of all of them                  all that is left is one sum, principal `several`

Every act is in the count of exactly one line. So the number of lines depends on the time and on how many
principals there are, and not on what they do.

No secret can be in a line: a field is an `Enum`, a number, or a text of a given form. None takes bytes, nor
words of a peer's own choice but the principal, the address, and the path that it named.

Invariants, looked at by `check`:

    AT1  sums, and the principals that began some, stand in the order in which they end
    AT2  there are no more of either than the bounds say
"""

import re
from collections import OrderedDict
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from moorline.limits import (
    AUDIT_ADDRESS_LENGTH_MAX,
    AUDIT_LINE_BYTES_MAX,
    AUDIT_PATH_LENGTH_MAX,
    AUDIT_PRINCIPAL_LENGTH_MAX,
    AUDIT_SUM_MS,
    AUDIT_SUMS_BEGUN_MAX,
    AUDIT_SUMS_OPEN_MAX,
    AUDIT_SUMS_PER_PRINCIPAL_MAX,
)

SEVERAL: Final = "several"
"""In a sum: more than one act, path, principal, address or proof."""

_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_LETTERS = re.compile(r"[+-]?[slwpdag]{0,7}")


class Kind(Enum):
    """What a line is about; also the last level of `$SYS/audit/KIND`."""

    LOGIN = "login"
    REFUSAL = "refusal"
    GRANT = "grant"
    OPERATOR = "operator"


class AuditProof(Enum):
    """How the principal was shown."""

    CERTIFICATE = "certificate"
    PASSWORD = "password"  # noqa: S105 - the name of a mechanism
    TOKEN = "token"  # noqa: S105
    NODE = "node"
    KERBEROS = "kerberos"
    OIDC = "oidc"
    NOTHING = "nothing"


class Verdict(Enum):
    GRANTED = "granted"
    DENIED = "denied"
    FAILED = "failed"
    """Granted, and then it could not be done."""


class Detail(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is worth knowing beside the act; each field has its form, and none is for a peer's words."""

    reason: str = ""
    """A code, as EXPIRED or OVER_QUOTA."""
    subject: str = ""
    """Whom a row of rights, a user's change or a quota is about."""
    letters: str = ""
    """Rights that were given (`+sl`), taken (`-w`) or missing (`w`)."""
    quota: str = ""
    bound: int = 0
    version: int = 0
    """Of the table of rights behind a change."""


NO_DETAIL: Final = Detail()
"""One object: a field that is this one is left out of a line."""


class Act(msgspec.Struct, frozen=True):
    """Something that somebody did, or was kept from."""

    kind: Kind
    principal: str
    proof: AuditProof
    address: str
    act: str
    """The name of the message's type, or of the act: a code of ours, never what the message holds."""
    path: str
    verdict: Verdict
    detail: Detail = NO_DETAIL
    is_look: bool = False
    """Nothing is changed by it, and whoever may do it may do it a thousand times a second."""


class AuditLine(msgspec.Struct, frozen=True):
    """One line of the trail. All texts are escaped and within their bounds."""

    kind: str
    wall_ms: int
    last_ms: int
    count: int
    principal: str
    proof: str
    address: str
    act: str
    path: str
    verdict: str
    detail: Detail = NO_DETAIL


class _Like(NamedTuple):
    """What refusals that are added up have in common."""

    kind: str
    principal: str
    proof: str
    act: str
    path: str
    verdict: str
    reason: str = ""
    """Of those that were one cause: a login that is refused for want of room is another than one that is
    refused for its proof."""


class _Sum:
    """Acts that are alike, behind the first of them."""

    __slots__ = ("address", "count", "detail", "ends_ms", "first_ms", "last_ms", "proof")

    def __init__(self, first: AuditLine, ends_ms: int) -> None:
        self.ends_ms = ends_ms
        self.count = 0
        self.first_ms = self.last_ms = 0
        self.proof, self.address, self.detail = first.proof, first.address, first.detail

    def add(self, line: AuditLine) -> None:
        # The first act was a line of its own; the sum begins with the second.
        if not self.count:
            self.first_ms = line.wall_ms
        self.count += line.count
        self.last_ms = line.wall_ms
        if line.proof != self.proof:
            self.proof = SEVERAL
        if line.address != self.address:
            self.address = SEVERAL
        if line.detail != self.detail:
            self.detail = NO_DETAIL


class _Begun:
    """How many sums were begun since when; of one principal, or of all."""

    __slots__ = ("count", "ends_ms")

    def __init__(self, ends_ms: int) -> None:
        self.count = 0
        self.ends_ms = ends_ms


class AuditTrail:
    """Acts in, lines out. Nothing that it holds grows with the number of acts."""

    def __init__(self) -> None:
        # Ordered: a plain dict that loses its first again and again is slow to find the next.
        self._sums: OrderedDict[_Like, _Sum] = OrderedDict()
        """The oldest first, so that also the first to end."""
        self._begun: OrderedDict[str, _Begun] = OrderedDict()
        """By principal; the oldest first. At most as many as sums may be open."""
        self._begun_by_all = _Begun(0)

    @property
    def due_ms(self) -> int | None:
        """When the oldest sum ends."""
        return next((found.ends_ms for found in self._sums.values()), None)

    def heard(self, act: Act, now_ms: int, wall_ms: int) -> list[AuditLine]:
        """An act; the lines to write now, in order."""
        line = line_of(act, wall_ms)
        # Never added up: whoever changed a right must be found with the time and the place of each change.
        if act.kind in (Kind.GRANT, Kind.OPERATOR) and not act.is_look:
            return [line]
        # What is over goes first, so that lines come in the order of their times, and a new act never joins
        # a sum that has ended.
        lines = self.looked(now_ms)
        like = self._like(line, now_ms)
        found = self._sums.get(like)
        if found is not None:
            found.add(line)
            return lines
        # The oldest ends early. It is written with its count: nothing is lost, there is a line more.
        if len(self._sums) >= AUDIT_SUMS_OPEN_MAX:
            lines += self._end(next(iter(self._sums)))
        found = self._sums[like] = _Sum(line, now_ms + AUDIT_SUM_MS)
        if like.act == SEVERAL:
            # Its line says of no single act what it was: it is written once, with the number of them.
            found.add(line)
        else:
            lines.append(line)
        return lines

    def looked(self, now_ms: int) -> list[AuditLine]:
        """The lines of the sums that are over."""
        lines: list[AuditLine] = []
        while self._sums:
            like = next(iter(self._sums))
            if self._sums[like].ends_ms > now_ms:
                break
            lines += self._end(like)
        while self._begun:
            principal = next(iter(self._begun))
            if self._begun[principal].ends_ms > now_ms:
                break
            del self._begun[principal]
        return lines

    def ended(self) -> list[AuditLine]:
        """The lines of all sums: nothing more is heard."""
        return [line for like in list(self._sums) for line in self._end(like)]

    def _like(self, line: AuditLine, now_ms: int) -> _Like:
        """Which sum it belongs to; one that is open, one that may be begun, or one for all that is left."""
        like = _Like(
            line.kind,
            line.principal,
            line.proof,
            line.act,
            line.path,
            line.verdict,
            line.detail.reason,
        )
        # One that is open costs no new line, whatever the bounds say.
        if like in self._sums:
            return like
        if now_ms >= self._begun_by_all.ends_ms:
            self._begun_by_all = _Begun(now_ms + AUDIT_SUM_MS)
        begun = self._begun.get(line.principal)
        if begun is None:
            if len(self._begun) >= AUDIT_SUMS_OPEN_MAX:
                del self._begun[next(iter(self._begun))]
            begun = self._begun[line.principal] = _Begun(now_ms + AUDIT_SUM_MS)
        # All before each: a principal is cheap to make up where names are guessed, and the bound of each
        # would bound nothing.
        if self._begun_by_all.count >= AUDIT_SUMS_BEGUN_MAX:
            return _Like(line.kind, SEVERAL, "", SEVERAL, "", line.verdict)
        if begun.count >= AUDIT_SUMS_PER_PRINCIPAL_MAX:
            return _Like(line.kind, line.principal, "", SEVERAL, "", line.verdict)
        begun.count += 1
        self._begun_by_all.count += 1
        return like

    def _end(self, like: _Like) -> list[AuditLine]:
        found = self._sums.pop(like)
        # Only the first came, and it has been written.
        if not found.count:
            return []
        return [
            AuditLine(
                like.kind,
                found.first_ms,
                found.last_ms,
                found.count,
                like.principal,
                found.proof,
                found.address,
                like.act,
                like.path,
                like.verdict,
                found.detail,
            )
        ]

    def check(self) -> None:
        """Asserts the invariants."""
        for table in (self._sums, self._begun):
            ends = [found.ends_ms for found in table.values()]
            assert ends == sorted(ends), f"AT1: {ends}"
            assert len(ends) <= AUDIT_SUMS_OPEN_MAX, f"AT2: {len(ends)} are kept"
        most = max((found.count for found in self._begun.values()), default=0)
        assert most <= AUDIT_SUMS_PER_PRINCIPAL_MAX, f"AT2: {most} sums of one principal"
        assert self._begun_by_all.count <= AUDIT_SUMS_BEGUN_MAX, "AT2: of all of them"


def line_of(act: Act, wall_ms: int) -> AuditLine:
    """An act as its line has it. A field of another type or form is a mistake of ours, never written."""
    detail = act.detail
    # The messages of these count characters and do not show them: what is no code may be a secret.
    assert _CODE.fullmatch(act.act), f"not the name of an act: {len(act.act)} characters"
    for code in (detail.reason, detail.quota):
        assert not code or _CODE.fullmatch(code), f"not a code: {len(code)} characters"
    assert _LETTERS.fullmatch(detail.letters), "not the letters of rights"
    assert type(detail.bound) is type(detail.version) is int
    subject = bounded(detail.subject, AUDIT_PRINCIPAL_LENGTH_MAX)
    return AuditLine(
        act.kind.value,
        wall_ms,
        wall_ms,
        1,
        bounded(act.principal, AUDIT_PRINCIPAL_LENGTH_MAX),
        act.proof.value,
        bounded(act.address, AUDIT_ADDRESS_LENGTH_MAX),
        act.act,
        bounded(act.path, AUDIT_PATH_LENGTH_MAX),
        act.verdict.value,
        detail if subject == detail.subject else msgspec.structs.replace(detail, subject=subject),
    )


def bounded(text: str, length_max: int) -> str:
    r"""A text from outside: what cannot be printed as \u001b, a backslash as two, cut with an ellipsis."""
    assert type(text) is str, f"a field of the trail is a text, not {type(text).__name__}"
    # A backslash is doubled, so that nobody can write an escape as text that looks like one of ours.
    if len(text) <= length_max and text.isprintable() and "\\" not in text:
        return text
    parts: list[str] = []
    room = length_max - 1
    for character in text:
        part = character if character.isprintable() else _escape(ord(character))
        if character == "\\":
            part = "\\\\"
        # Cut between two parts: half an escape would be read as something else.
        if len(part) > room:
            return "".join(parts) + "…"
        parts.append(part)
        room -= len(part)
    return "".join(parts)


def _escape(point: int) -> str:
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"


# --- lines as bytes -------------------------------------------------------------------------------


class StoredLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line as it is in the file, in this order: one JSON object."""

    time: str
    node: str
    kind: str
    principal: str
    proof: str
    address: str
    act: str
    path: str
    verdict: str
    count: int = 1
    last: str = ""
    """The time of the last of them, where there are several."""
    detail: Detail = NO_DETAIL


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(StoredLine)


def encoded(line: AuditLine, node: str) -> bytes:
    """The line of the file, its end included."""
    stored = StoredLine(
        time_text(line.wall_ms),
        node,
        line.kind,
        line.principal,
        line.proof,
        line.address,
        line.act,
        line.path,
        line.verdict,
        line.count,
        time_text(line.last_ms) if line.count > 1 else "",
        line.detail,
    )
    data = _encoder.encode(stored) + b"\n"
    # All fields are bounded, so this cannot happen; if it did, a reader would take the line for a torn one.
    assert len(data) <= AUDIT_LINE_BYTES_MAX, f"a line of {len(data)} bytes"
    return data


def decoded(data: bytes) -> StoredLine | None:
    """None for a line that was torn, or was changed by another hand."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def counted(lines: Iterable[AuditLine]) -> int:
    """How many acts they are about."""
    return sum(line.count for line in lines)


def time_text(wall_ms: int) -> str:
    """In UTC with milliseconds: texts of this form sort as their times."""
    moment = datetime.fromtimestamp(wall_ms // 1_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{wall_ms % 1_000:03d}Z"
