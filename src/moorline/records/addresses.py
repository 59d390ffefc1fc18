"""Room: records. Where the databases with tables of users are. An address with a password is in a file,
never in the catalog, in settings or in an argument."""

from pathlib import Path

from moorline.catalog.location import catalog_address
from moorline.catalog.socket_folder import PORT, SOCKET
from moorline.config.database_address import read_address
from moorline.config.records import OWN_DATABASE
from moorline.config.settings import Config
from moorline.errors import DatabaseUnreachable


def addresses(config: Config, catalog: str) -> dict[str, str]:
    """By name: the catalog's own, and those that the settings name."""
    found = {OWN_DATABASE: catalog}
    for one in config.records.database_files():
        found[one.name] = read_address(Path(one.file))
    return found


def own_address(config: Config) -> str:
    """That of the catalog, for whoever works on it beside the node: the embedded one runs while its node
    does."""
    if not config.is_catalog_embedded:
        return catalog_address(config)
    folder = (Path(config.data) / "run").resolve()
    if not (folder / SOCKET).exists():
        raise DatabaseUnreachable(
            f"no node with an embedded catalog runs on {config.data}: start it, or name a Postgres "
            f"with --database."
        )
    return f"postgresql://postgres@/postgres?host={folder}&port={PORT}"
