"""Room: config. The address of a Postgres, as it is given, and where its password may be."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from moorline.errors import ConfigError
from moorline.limits import CATALOG_ADDRESS_FILE_BYTES_MAX

IN_A_FILE = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"

_SECRET_PARAMETERS = frozenset({"password", "sslpassword"})


def check_no_password(dsn: str, *, name: str, file_name: str, shown_by: str) -> None:
    """For an address in an option or an argument."""
    if has_password(dsn):
        raise ConfigError(
            f"{name} has a password in it, which {shown_by}: put the address into a file and give "
            f"{file_name}, or the password into ~/.pgpass"
        )


def has_password(dsn: str) -> bool:
    """Whether there is a secret in the address, or what it is cannot be told."""
    try:
        parts = urlsplit(dsn)
        return parts.password is not None or not _SECRET_PARAMETERS.isdisjoint(
            parse_qs(parts.query, keep_blank_values=True)
        )
    except ValueError:
        return True


def read_address(file: Path) -> str:
    """The address in a file. What is in it is never quoted."""
    try:
        with file.open("rb") as opened:
            content = opened.read(CATALOG_ADDRESS_FILE_BYTES_MAX + 1)
        text = content.decode().strip()
    except OSError as error:
        raise ConfigError(
            f"the file {file} with the address of a database cannot be read: {error.strerror}"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"the file {file} is no text: it holds {IN_A_FILE}") from None
    if (
        len(content) > CATALOG_ADDRESS_FILE_BYTES_MAX
        or "\n" in text
        or not text.startswith(("postgresql://", "postgres://"))
    ):
        raise ConfigError(f"the file {file} holds one line, {IN_A_FILE}")
    return text
