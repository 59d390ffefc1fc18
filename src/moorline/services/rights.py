"""Room: services. Who may do what with services: paths, and who owns which."""

from typing import Final

from moorline.access.guard import is_owners
from moorline.catalog.service_audit import Meant
from moorline.catalog.services import ServiceRow
from moorline.core.access.owner import judged_name_of
from moorline.core.access.principal import level_of
from moorline.core.access.right import LIST
from moorline.net.session_rights import SessionRights

SERVICES: Final = "/services"


def all_services(_: object) -> tuple[str]:
    return (SERVICES,)


def path_of(name: str) -> str:
    return f"{SERVICES}/{level_of(name)}"


def owner_of(service: Meant | ServiceRow) -> str:
    """Its principal, or the fingerprint of the certificate that made it before there were principals."""
    return service.principal or judged_name_of(service.fingerprint)


def may(rights: SessionRights, right: int, service: Meant | ServiceRow) -> bool:
    """A service sees itself. What is done to it, such as to switch it off, it does not undo by itself."""
    if rights.at(path_of(service.name)) & right:
        return True
    return right == LIST and is_owners(rights, LIST, owner_of(service))
