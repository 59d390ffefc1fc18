"""Room: catalog. The address of a catalog, and why Postgres does not answer there.

No text from here ever holds a password, whether the address is well formed or not.
"""

import re
import socket
import ssl
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import asyncpg

from moorline.errors import CatalogUnreachable

SHAPE = (
    "it is postgresql://USER@HOST:5432/DATABASE, and the password is in PGPASSWORD, in ~/.pgpass, or with "
    "all the rest in a file (catalog_file)"
)

ODD_PASSWORD = (
    f"the catalog's address is not well formed: {SHAPE}; write special characters of the password "
    "as %XX."
)

# A name or an address in brackets, and a port that is a number: `user:password` without a host
# after it must not pass for one.
HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^:@\[\]]*)(:[0-9]+)?")

# Postgres is gone, going, or out of something: nothing that our statement could have helped.
LOST_ERRORS = (
    OSError,  # TimeoutError included
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InterfaceError,
    # What asyncpg says when a connection is lost just as it sends a statement.
    asyncpg.InternalClientError,
)

# What can come out of opening a catalog: any refusal of the server's is the operator's to settle.
# The last two are for options and ports that cannot be.
OPEN_ERRORS = (
    *LOST_ERRORS,
    asyncpg.PostgresError,
    ValueError,
    OverflowError,
)


def check_address(dsn: str) -> None:
    """Refuses what is no address of a Postgres. What was given is not quoted: it may hold secrets."""
    try:
        parts = urlsplit(dsn)
    except ValueError:
        # No cause: the parser's own text quotes the address.
        raise CatalogUnreachable(ODD_PASSWORD) from None
    if parts.scheme not in ("postgresql", "postgres"):
        raise CatalogUnreachable(f"the catalog's address is no postgresql:// address: {SHAPE}.")
    # A bare / ? or # in the password ends the host part too early: the rest is elsewhere then.
    rest = parts.path + parts.query
    hosts = _place(parts).split(",")
    if parts.fragment or "@" in rest or not all(HOST.fullmatch(host) for host in hosts):
        raise CatalogUnreachable(ODD_PASSWORD)


def shown(dsn: str) -> str:
    """The address as texts may show it: user, host, port and database, and nothing else."""
    parts = urlsplit(dsn)
    user = f"{parts.username}@" if parts.username else ""
    place = _place(parts) or parse_qs(parts.query).get("host", [""])[0]
    return f"postgresql://{user}{place}{parts.path}"


def unreachable(dsn: str, error: BaseException) -> CatalogUnreachable:
    """The error, in one line, for a catalog that was asked and did not answer as it should."""
    words = str(error) or type(error).__name__
    # A server's own words are not ours: whatever it repeats, the password is not in it.
    for secret in _secrets(dsn):
        words = words.replace(secret, "***")
    return CatalogUnreachable(f"the catalog {shown(dsn)} {_reason(error, ' '.join(words.split()))}")


def _reason(error: BaseException, words: str) -> str:
    match error:
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            return (
                f"does not let us in ({words}): check the user, its password in PGPASSWORD, ~/.pgpass or "
                "the file with the address, and the server's pg_hba.conf."
            )
        case asyncpg.InvalidCatalogNameError():
            return f"does not know the database ({words}): create it, or name another."
        case asyncpg.InsufficientPrivilegeError():
            return (
                f"refuses a statement ({words}): the user must own the schema moorline, or may "
                "create it after `grant create on database … to …`."
            )
        case asyncpg.TooManyConnectionsError():
            return "has no connection left: raise its max_connections, or stop another client."
        case asyncpg.CannotConnectNowError():
            return f"is starting or stopping ({words}): start again in a moment."
        case TimeoutError():
            return "did not answer in time: check the host, the port and any firewall between."
        case socket.gaierror():
            return f"has a host that cannot be found ({words}): check its name."
        case ssl.SSLError():
            return f"and we do not agree on TLS ({words}): check sslmode and certificates."
        case OSError():
            return f"cannot be reached ({words}): check that Postgres runs and listens there."
        case _:
            return f"cannot be used ({words})."


def _place(parts: SplitResult) -> str:
    """Host and port. They are behind the last @; what is before it may hold a password."""
    return parts.netloc.rpartition("@")[2]


def _secrets(dsn: str) -> list[str]:
    parts = urlsplit(dsn)
    raw = [parts.password or "", *parse_qs(parts.query).get("password", [])]
    found = {word for secret in raw for word in (secret, unquote(secret)) if word}
    return sorted(found, key=len, reverse=True)
