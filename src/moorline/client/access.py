"""Room: client. Rights as whoever manages them sees them: rows, users, groups of users, quotas, owners.

    print(await moor.access.who_am_i())
    await moor.access.add_grant("/topics/orders", "@sales", "sl")
    found = await moor.access.explain("w", "/topics/orders", "alice")

A call that changes something and raises a `CallFailed` has changed nothing, and will not; only after
`OutcomeUnknown`, or a `ConnectionLost` while it waits, nobody knows. To ask again is harmless.
"""

from functools import partial

from moorline.limits import CLUSTER_SECRET_OLD_S
from moorline.net.caller import Calls
from moorline.wire import access as wire
from moorline.wire import cluster
from moorline.wire.audit import AuditRead, ReadAudit
from moorline.wire.queue import Done


class Access:
    """The rights of a cluster. Most of it needs the right `g`, at the path or at /admin/users."""

    def __init__(self, caller: Calls) -> None:
        self._caller = caller

    async def who_am_i(self) -> wire.Identified:
        """Whom the node takes this connection for, and what that one may do."""
        return await self._caller.call(wire.WhoAmI, wire.Identified)

    async def make_pass(self, life_s: int = 0) -> wire.PassMade:
        """Lets a page in a browser act as whoever asks, for that many seconds; 0 is the node's own time."""
        return await self._caller.call(partial(wire.MakePass, life_s=life_s), wire.PassMade)

    # --- nodes ------------------------------------------------------------------------------------

    async def remove_node(self, home: str, *, is_forced: bool = False) -> str:
        """The node of that home leaves the cluster; its name."""
        asked = partial(cluster.RemoveNode, home=home, is_forced=is_forced)
        return (await self._caller.call(asked, cluster.NodeRemoved)).name

    async def renew_cluster_secret(self, *, old_for_s: float = CLUSTER_SECRET_OLD_S) -> None:
        """Nodes prove themselves by another secret; the one before is taken for that long beside it."""
        asked = partial(cluster.RenewClusterSecret, old_for_ms=round(old_for_s * 1_000))
        await self._caller.call(asked, cluster.ClusterSecretRenewed)

    # --- rows -------------------------------------------------------------------------------------

    async def add_grant(
        self, path: str, subject: str, grants: str = "", *, denies: str = ""
    ) -> wire.GrantChanged:
        """Adds letters to the row of a path and a subject; the row as it is then."""
        asked = partial(wire.AddGrant, path=path, subject=subject, grants=grants, denies=denies)
        return await self._caller.call(asked, wire.GrantChanged)

    async def remove_grant(self, path: str, subject: str, letters: str = "") -> wire.GrantChanged:
        """Takes letters out of a row, or the whole row."""
        asked = partial(wire.RemoveGrant, path=path, subject=subject, letters=letters)
        return await self._caller.call(asked, wire.GrantChanged)

    async def grants(self, path: str = "/", subject: str = "") -> list[wire.GrantFacts]:
        """All rows at and below a path, page by page."""
        found: list[wire.GrantFacts] = []
        while True:
            asked = partial(wire.ListGrants, path=path, subject=subject)
            if found:
                asked = partial(asked, after_path=found[-1].path, after_subject=found[-1].subject)
            page = (await self._caller.call(asked, wire.GrantsListed)).grants
            if not page:
                return found
            found += page

    async def check(self, right: str, path: str, subject: str = "") -> bool:
        """Whether a right is granted; to us, if nobody is named."""
        asked = partial(wire.CheckGrant, right=right, path=path, subject=subject)
        return (await self._caller.call(asked, wire.GrantChecked)).is_granted

    async def explain(self, right: str, path: str, subject: str = "") -> wire.GrantExplained:
        """The same, with the rows that decided."""
        asked = partial(wire.ExplainGrant, right=right, path=path, subject=subject)
        return await self._caller.call(asked, wire.GrantExplained)

    async def keep_grants(self) -> int:
        """Says yes to the rows of an upgrade; how many there are."""
        return (await self._caller.call(wire.KeepGrants, wire.GrantsKept)).rows

    # --- users ------------------------------------------------------------------------------------

    async def add_user(self, name: str, password: bytes = b"") -> None:
        asked = partial(wire.AddUser, name=name, password=password)
        await self._caller.call(asked, Done)

    async def change_user(
        self, name: str, *, password: bytes | None = None, is_disabled: bool | None = None
    ) -> None:
        """An empty password takes it away; None leaves a thing as it is."""
        asked = partial(wire.ChangeUser, name=name, password=password, is_disabled=is_disabled)
        await self._caller.call(asked, Done)

    async def remove_user(self, name: str) -> wire.UserRemoved:
        """What is left: rows, memberships and quotas are its principal's."""
        return await self._caller.call(partial(wire.RemoveUser, name=name), wire.UserRemoved)

    async def users(self) -> list[wire.UserFacts]:
        found: list[wire.UserFacts] = []
        while True:
            asked = partial(wire.ListUsers, after=found[-1].name if found else "")
            page = (await self._caller.call(asked, wire.UsersListed)).users
            if not page:
                return found
            found += page

    async def add_token(self, name: str, label: str, *, expires_s: int = 0) -> wire.TokenAdded:
        """The token of the answer is told this once."""
        asked = partial(wire.AddToken, name=name, label=label, expires_s=expires_s)
        return await self._caller.call(asked, wire.TokenAdded)

    async def revoke_token(self, name: str, label: str) -> None:
        await self._caller.call(partial(wire.RevokeToken, name=name, label=label), Done)

    async def add_member(self, group: str, member: str) -> bool:
        """False if it was one."""
        asked = partial(wire.AddMember, group=group, member=member)
        return (await self._caller.call(asked, wire.AccessChanged)).is_changed

    async def remove_member(self, group: str, member: str) -> bool:
        """False if it was none."""
        asked = partial(wire.RemoveMember, group=group, member=member)
        return (await self._caller.call(asked, wire.AccessChanged)).is_changed

    async def members(self, group: str = "") -> list[wire.MemberFacts]:
        """Of one group of users, or of all."""
        found: list[wire.MemberFacts] = []
        while True:
            asked = partial(wire.ListMembers, group=group)
            if found:
                last = found[-1]
                asked = partial(asked, after_group=last.group, after_member=last.member)
            page = (await self._caller.call(asked, wire.MembersListed)).members
            if not page:
                return found
            found += page

    # --- quotas and owners ------------------------------------------------------------------------

    async def set_quota(self, subject: str, kind: str, amount: int | None) -> bool:
        """None takes the row away; False if there was none."""
        asked = partial(wire.SetQuota, subject=subject, kind=kind, amount=amount)
        return (await self._caller.call(asked, wire.AccessChanged)).is_changed

    async def quotas(self, subject: str = "") -> list[wire.QuotaFacts]:
        found: list[wire.QuotaFacts] = []
        while True:
            asked = partial(wire.ListQuotas, subject=subject)
            if found:
                last = found[-1]
                asked = partial(asked, after_subject=last.subject, after_kind=last.kind)
            page = (await self._caller.call(asked, wire.QuotasListed)).quotas
            if not page:
                return found
            found += page

    async def quota_usage(self, principal: str = "") -> wire.QuotasDescribed:
        """What a principal has at this node beside its bounds; without a name, what you have yourself."""
        asked = partial(wire.DescribeQuotas, principal=principal)
        return await self._caller.call(asked, wire.QuotasDescribed)

    async def owners(self) -> list[wire.OwnerFacts]:
        """Everybody who owns something in the catalog, every old name that has a principal, and every old
        certificate that has queues at this node."""
        found: list[wire.OwnerFacts] = []
        page = (await self._caller.call(wire.ListOwners, wire.OwnersListed)).owners
        while page:
            found += page
            asked = partial(wire.ListOwners, after=found[-1].name)
            page = (await self._caller.call(asked, wire.OwnersListed)).owners
        return found

    async def map_owner(self, known_as: str, principal: str) -> wire.OwnerMapped:
        asked = partial(wire.MapOwner, known_as=known_as, principal=principal)
        return await self._caller.call(asked, wire.OwnerMapped)

    # --- the audit --------------------------------------------------------------------------------

    async def read_audit(
        self,
        file: int = 0,
        offset: int = 0,
        *,
        since: str = "",
        principal: str = "",
        verdict: str = "",
        kind: str = "",
        path: str = "",
    ) -> AuditRead:
        """A page of the node's audit trail, from the beginning or from where the last page ended.

        Each line is a JSON object. A page may be empty and not the last one: `is_end` says that.
        """
        asked = partial(
            ReadAudit,
            file=file,
            offset=offset,
            since=since,
            principal=principal,
            verdict=verdict,
            kind=kind,
            path=path,
        )
        return await self._caller.call(asked, AuditRead)
