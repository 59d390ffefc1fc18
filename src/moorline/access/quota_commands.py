"""Room: access. What a principal has of each quota at this node, beside its bound."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from moorline.access.guard import Declarations, heavy, needs
from moorline.access.quotas import Quotas, account_of
from moorline.core.access.owner import owner_of
from moorline.core.access.principal import ANONYMOUS, LOOPBACK
from moorline.core.access.quota import UNBOUNDED, Quota
from moorline.core.access.right import GRANT
from moorline.net.session import Session
from moorline.net.turns import Turns
from moorline.wire.access import DescribeQuotas, QuotasDescribed, QuotaUsage
from moorline.wire.message import Answer

USERS = "/admin/users"


class QuotaCommands:
    def __init__(
        self, quotas: Quotas, in_catalog: Mapping[Quota, Callable[[str], Awaitable[int]]]
    ) -> None:
        """`in_catalog` says how many of each a principal has made, where the catalog knows that."""
        self.owned: dict[Quota, Callable[[bytes], int]] = {}
        """What an owner has of that which is kept at this node; rooms add what they count."""
        self._quotas = quotas
        self._in_catalog = in_catalog
        self._turns = Turns()

    def declared(self) -> Declarations:
        describe = self._turns.later(self._describe)
        return {DescribeQuotas: heavy(needs(GRANT, _of_another, describe))}

    def close(self) -> None:
        self._turns.close()

    async def _describe(self, session: Session, call: DescribeQuotas) -> Answer:
        principal = call.principal or account_of(session.rights.principal, session.rights.is_local)
        found = self._quotas.used(principal)
        acting = ANONYMOUS if principal == LOOPBACK else principal
        for quota, count in self.owned.items():
            found[quota] = (count(owner_of(acting)), found[quota][1])
        for quota, made_by in self._in_catalog.items():
            found[quota] = (await made_by(acting), found[quota][1])
        rows = [
            QuotaUsage(quota.value, used, None if bound >= UNBOUNDED else bound)
            for quota, (used, bound) in found.items()
        ]
        return QuotasDescribed(call.call, principal, tuple(rows))


def _of_another(call: Any) -> Iterable[str]:
    """Everybody may know its own."""
    return (USERS,) if call.principal else ()
