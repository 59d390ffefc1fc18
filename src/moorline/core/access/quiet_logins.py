"""Room: core/access. Granted logins of those who come all the time: anonymous clients, and nodes.

A program without a proof may connect a hundred times a second. So the first of a principal from an address
is a line, and those that follow within AUDIT_QUIET_MS are one line at its end, with how many they were. Too
many addresses at once are one sum.

These lines are in the files alone. As messages they would lie among those of whoever merely connects, count
in the lag of groups, and be read, archived and missed with them.

Invariants, looked at by `check`:

    L1  no more sums are open than may be
    L2  the first of them is the first to end
"""

from collections import OrderedDict
from typing import NamedTuple

import msgspec

from moorline.core.access.audit import SEVERAL, Act, AuditLine, AuditProof, Kind, Verdict, line_of
from moorline.limits import AUDIT_QUIET_MS, AUDIT_QUIET_SUMS_MAX

_QUIET = frozenset({AuditProof.NOTHING, AuditProof.NODE})
_QUIET_TEXTS = frozenset(proof.value for proof in _QUIET)


class _Who(NamedTuple):
    principal: str
    proof: str
    address: str


class _Sum:
    __slots__ = ("ends_ms", "line")

    def __init__(self, ends_ms: int) -> None:
        self.ends_ms = ends_ms
        self.line: AuditLine | None = None
        """Of those behind the first."""

    def add(self, line: AuditLine) -> None:
        before = self.line
        if before is None:
            self.line = line
        else:
            count = before.count + line.count
            self.line = msgspec.structs.replace(before, count=count, last_ms=line.last_ms)


def is_quiet(act: Act) -> bool:
    return act.kind is Kind.LOGIN and act.verdict is Verdict.GRANTED and act.proof in _QUIET


def is_quiet_line(line: AuditLine) -> bool:
    """Of a quiet login, or of a sum of them."""
    is_granted_login = line.kind == Kind.LOGIN.value and line.verdict == Verdict.GRANTED.value
    return is_granted_login and line.proof in _QUIET_TEXTS


class QuietLogins:
    """Lines in, of which few come out at once and the others in sums."""

    def __init__(self) -> None:
        self._sums: OrderedDict[_Who, _Sum] = OrderedDict()
        """The oldest first, so that also the first to end."""

    @property
    def due_ms(self) -> int | None:
        return next((one.ends_ms for one in self._sums.values()), None)

    def heard(self, act: Act, now_ms: int, wall_ms: int) -> list[AuditLine]:
        """A login; the lines to write now, in order."""
        assert is_quiet(act), "others are lines of their own"
        line = line_of(act, wall_ms)
        lines = self.looked(now_ms)
        who = _Who(line.principal, line.proof, line.address)
        found = self._sums.get(who)
        if found is None and len(self._sums) >= AUDIT_QUIET_SUMS_MAX - len(_QUIET):
            # The last places are for all whom there is no place for, of each proof.
            who = _Who(SEVERAL, line.proof, SEVERAL)
            line = msgspec.structs.replace(line, principal=SEVERAL, address=SEVERAL)
            found = self._sums.setdefault(who, _Sum(now_ms + AUDIT_QUIET_MS))
        if found is None:
            self._sums[who] = _Sum(now_ms + AUDIT_QUIET_MS)
            return [*lines, line]
        found.add(line)
        return lines

    def looked(self, now_ms: int) -> list[AuditLine]:
        """The lines of the sums that are over."""
        lines: list[AuditLine] = []
        while self._sums:
            who, found = next(iter(self._sums.items()))
            if found.ends_ms > now_ms:
                break
            del self._sums[who]
            lines += [found.line] if found.line is not None else []
        return lines

    def ended(self) -> list[AuditLine]:
        """The lines of all sums: nothing more is heard."""
        lines = [found.line for found in self._sums.values() if found.line is not None]
        self._sums.clear()
        return lines

    def check(self) -> None:
        """Asserts the invariants."""
        assert len(self._sums) <= AUDIT_QUIET_SUMS_MAX, f"L1: {len(self._sums)} sums are open"
        ends = [found.ends_ms for found in self._sums.values()]
        assert ends == sorted(ends), "L2: a sum ends before one that stands before it"
