"""Room: records. Who may see what of a table, by the rows of rights as they are now.

    version = permits.version                  read before the permit, and told with it
    permit = permits.of(session.rights, table)

The version is raised in the moment in which rights change, before anybody reads them again. So a
permit that was
read with an older number is known to be old, and whoever goes live with it is cut.
"""

from collections.abc import Callable
from typing import cast

from moorline.access.rights import Rights
from moorline.access.rights_table import RightsTable
from moorline.core.access.right import SUBSCRIBE
from moorline.core.records.permit import ROOT, Permit, make_permit, owner_column, permit_of
from moorline.core.records.table import Table
from moorline.net.session_rights import SessionRights


class Permits:
    def __init__(self, rights: RightsTable) -> None:
        self.version = 1
        self._rights = rights
        self._hear: list[Callable[[int], None]] = []
        self.close = rights.on_change(self._changed)

    def on_change(self, hear: Callable[[int], None]) -> Callable[[], None]:
        """Calls it with the new version, within the change; what is returned ends that."""
        self._hear.append(hear)
        return lambda: self._hear.remove(hear)

    def of(self, rights: SessionRights, table: Table) -> Permit:
        """RightsUnknown where the node knows nobody's."""
        rights.check_known()
        if rights.is_node:
            return make_permit(owner_column(table), is_all=True)
        return permit_of(self._rights.grants, cast("Rights", rights).subjects, table)

    def may_know(self, rights: SessionRights, name: str) -> bool:
        """Whether it may see anything that a table of that name could have. RightsUnknown as above."""
        rights.check_known()
        if rights.is_node:
            return True
        subjects = cast("Rights", rights).subjects
        is_all, levels = self._rights.grants.split(subjects, SUBSCRIBE, f"{ROOT}/{name}")
        return is_all or bool(levels)

    def _changed(self) -> None:
        self.version += 1
        for hear in list(self._hear):
            hear(self.version)
