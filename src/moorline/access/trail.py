"""Room: access. What sessions do, as acts of the audit trail: who came, who was refused, who changed what.

The trail itself (`access/audit.py`) knows no sessions; this is where their facts become an act. Which
acts are audited is decided at these places, kind by kind:

    a login                     `NodeAccess.entered` (node/access.py); added up where `is_quiet`
                                (core/access/quiet_logins.py)
    a login that is refused,    the listener, by its `refused` (net/listener.py); over a quota, node/access.py
    and who ends before one
    a call that is refused      the guard, before a handler (access/guard.py); inside of one `Demands.telling`
                                (access/demands.py); a room that judges call by call tells it by `tell`
                                (queues/refusals.py) or `refused` (resolver/commands.py)
    a change of rights,         `AccessBroker._changing` (access/commands.py), before it is done
    users, quotas or owners
    an operator's act           what needs the right `a` and is not the owner's: `audited_path` of its
                                declaration (access/guard.py), `Demands.operate` where the owner is known late
                                (access/demands.py), and `OperatorBroker.audited` (services/operator.py)

How many lines become of them is `AuditTrail` (core/access/audit.py).
"""

from typing import Final, Protocol

import msgspec

from moorline.access.audit import Audit
from moorline.core.access.audit import NO_DETAIL, Act, AuditProof, Detail, Kind, Verdict
from moorline.core.access.principal import ANONYMOUS, Proof, level_of
from moorline.net.listener import LOGIN, LoginRefused
from moorline.net.tls import Identity

USERS: Final = "/admin/users"

PROOFS: Final = {
    **{proof.value: AuditProof[proof.name] for proof in Proof},
    "anonymous": AuditProof.NOTHING,
}
"""By the mechanism that was tried, or that proved somebody."""


class Acting(Protocol):
    """What is written down of a session."""

    @property
    def identity(self) -> Identity: ...

    @property
    def peer_address(self) -> str: ...


class Trail:
    """The audit of a node as its listeners, its guard and its commands see it, with figures for /metrics."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self.logins = 0
        self.logins_refused = 0
        self.denied = 0
        """Calls that were refused for want of a right."""

    def entered(self, session: Acting) -> None:
        self.logins += 1
        self._audit.heard(_act(Kind.LOGIN, session, LOGIN, "/", Verdict.GRANTED))

    def login_refused(self, refused: LoginRefused) -> None:
        self.logins_refused += 1
        # A stranger must not be able to invent principals: whom it claims to be is in the path.
        claimed = f"/{level_of(refused.claimed)}" if refused.claimed else ""
        path = f"{USERS}{claimed}" if refused.act == LOGIN else "/"
        self._audit.heard(
            Act(
                Kind.LOGIN,
                ANONYMOUS,
                PROOFS[refused.mechanism],
                refused.address,
                refused.act,
                path,
                Verdict.DENIED,
                Detail(reason=refused.code),
            )
        )

    def refused(self, session: Acting, /, act: str, path: str, code: str) -> None:
        self.denied += 1
        detail = Detail(reason=code)
        self._audit.heard(_act(Kind.REFUSAL, session, act, path or "/", Verdict.DENIED, detail))

    async def changing(self, session: Acting, /, act: str, path: str, detail: Detail) -> None:
        """Before rights, users or quotas are changed."""
        await self._audit.recorded(
            _act(Kind.GRANT, session, act, path, Verdict.GRANTED, detail),
        )

    async def operating(self, session: Acting, /, act: str, path: str) -> None:
        """Before an operator's act is done."""
        await self._audit.recorded(_act(Kind.OPERATOR, session, act, path, Verdict.GRANTED))

    async def looking(self, session: Acting, /, act: str, path: str) -> None:
        """Before somebody is shown messages without a subscription to them."""
        look = _act(Kind.OPERATOR, session, act, path, Verdict.GRANTED)
        await self._audit.looked(msgspec.structs.replace(look, is_look=True))


def _act(
    kind: Kind,
    session: Acting,
    act: str,
    path: str,
    verdict: Verdict,
    detail: Detail = NO_DETAIL,
) -> Act:
    identity = session.identity
    return Act(
        kind,
        identity.principal,
        PROOFS[identity.proof.value],
        session.peer_address,
        act,
        path,
        verdict,
        detail,
    )
