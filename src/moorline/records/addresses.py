"""Room: records. Where the databases with tables of users are. An address with a password is in a file,
never in the catalog, in settings or in an argument."""

from pathlib import Path

from moorline.catalog.socket_folder import PORT, SOCKET
from moorline.config.records import OWN_DATABASE
from moorline.config.settings import Config
from moorline.errors import ConfigError, DatabaseUnreachable
from moorline.limits import RECORDS_ADDRESS_FILE_BYTES_MAX


def addresses(config: Config, catalog: str) -> dict[str, str]:
    """By name: the catalog's own, and those that the settings name."""
    found = {OWN_DATABASE: catalog}
    for one in config.records.database_files():
        found[one.name] = read_address(Path(one.file))
    return found


def read_address(file: Path) -> str:
    """The address in a file. What is in it is never quoted."""
    try:
        with file.open("rb") as opened:
            content = opened.read(RECORDS_ADDRESS_FILE_BYTES_MAX + 1)
        text = content.decode().strip()
    except OSError as error:
        raise ConfigError(
            f"the file {file} with the address of a database cannot be read: {error.strerror}"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(
            f"the file {file} is no text: it holds postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        ) from None
    if (
        len(content) > RECORDS_ADDRESS_FILE_BYTES_MAX
        or "\n" in text
        or not text.startswith(("postgresql://", "postgres://"))
    ):
        raise ConfigError(
            f"the file {file} holds one line, postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        )
    return text


def own_address(config: Config) -> str:
    """That of the catalog, for whoever works on it beside the node: the embedded one runs while its node
    does."""
    if config.catalog != "embedded":
        return config.catalog
    folder = (Path(config.data) / "run").resolve()
    if not (folder / SOCKET).exists():
        raise DatabaseUnreachable(
            f"no node with an embedded catalog runs on {config.data}: start it, or name a Postgres "
            f"with --database."
        )
    return f"postgresql://postgres@/postgres?host={folder}&port={PORT}"
