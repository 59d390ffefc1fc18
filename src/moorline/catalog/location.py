"""Room: catalog. Where a catalog is, in a form that may be printed, pickled and sent: no secret is in it.

    CatalogLocation("postgresql://moor@db-1:5432/moorline")     the password is in PGPASSWORD or ~/.pgpass
    CatalogLocation(file="/etc/moorline/catalog")               the file has the address, password and all

A file is read where a connection is opened, in whichever process that is.
"""

from pathlib import Path

import msgspec

from moorline.catalog.address import check_address, shown
from moorline.config.database_address import check_no_password, has_password, read_address
from moorline.config.settings import Config
from moorline.errors import ConfigError


class CatalogLocation(msgspec.Struct, frozen=True):
    """One of the two is given."""

    dsn: str = ""
    file: str = ""

    def __post_init__(self) -> None:
        assert bool(self.dsn) != bool(self.file), "an address or a file"
        assert not has_password(self.dsn), "refused where it was given"

    def __str__(self) -> str:
        return shown(self.dsn) if self.dsn else self.file

    def address(self) -> str:
        """What a connection is opened with."""
        found = self.dsn or read_address(Path(self.file))
        check_address(found)
        return found


def catalog_address(config: Config) -> str:
    """The address of a catalog that is no node's own, from the settings or the file that they name."""
    assert not config.is_catalog_embedded, "that one has its address when it runs"
    return read_address(Path(config.catalog_file)) if config.catalog_file else config.catalog


def location_of(
    dsn: str, file: str, *, dsn_name: str, file_name: str, shown_by: str
) -> CatalogLocation:
    """The place that was given; a password where others see it is refused, by name and without its value."""
    if dsn and file:
        raise ConfigError(f"{dsn_name} and {file_name} name two catalogs: give one of them")
    if dsn:
        check_address(dsn)
        check_no_password(dsn, name=dsn_name, file_name=file_name, shown_by=shown_by)
    # The executors may be in other folders.
    return CatalogLocation(dsn, str(Path(file).absolute()) if file else "")
