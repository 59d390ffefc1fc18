"""Room: cli. Who we are at a node, by flags and variables: one kind of proof, and of files alone.

Flags go before variables, whichever kind those are of; `cli/endpoint.py` has them all.
"""

import os
from pathlib import Path
from typing import Any, Final

import msgspec
import typer

WHO_FLAGS: Final = ("user", "user_password_file", "user_token_file")
"""By the names of their parameters: a command may have a password file of its own, of whom it makes."""

KERBEROS_FLAGS: Final = ("kerberos", "keytab", "ccache", "kerberos_principal", "kerberos_service")


class KerberosFiles(msgspec.Struct, frozen=True):
    """Where the ticket is; without a file in the default cache of this user."""

    keytab: Path | None = None
    ccache: Path | None = None
    principal: str = ""
    service: str = ""


Shown = tuple[str, Path | None, Path | None, KerberosFiles | None]
"""A user, the files of its password or token, or those of Kerberos."""


def shown_by(options: dict[str, Any]) -> Shown:
    """Takes these flags from the options of a command."""
    who = [options.pop(name) for name in WHO_FLAGS]
    kerberos = [options.pop(name) for name in KERBEROS_FLAGS]
    if any(kerberos):
        if any(one is not None for one in who):
            raise typer.BadParameter(
                "--kerberos, --keytab and --ccache say who we are, and so do --user and --token-file: give "
                "one kind"
            )
        return "", None, None, _kerberos(*kerberos)
    by_kerberos = _of_variables() if all(one is None for one in who) else None
    if by_kerberos is not None:
        return "", None, None, by_kerberos
    return *_who(*who), None


def _of_variables() -> KerberosFiles | None:
    found = [os.environ.get(name, "") for name in ("MOOR_KERBEROS", "MOOR_KEYTAB", "MOOR_CCACHE")]
    if found[0] not in ("", "0", "1"):
        raise typer.BadParameter("MOOR_KERBEROS: give 1, or 0")
    if not any(found[1:]) and found[0] != "1":
        return None
    if os.environ.get("MOOR_USER") or os.environ.get("MOOR_TOKEN_FILE"):
        raise typer.BadParameter(
            "MOOR_KERBEROS, MOOR_KEYTAB and MOOR_CCACHE say who we are, and so do MOOR_USER and "
            "MOOR_TOKEN_FILE: set one kind"
        )
    keytab, ccache = (Path(one) if one else None for one in found[1:])
    return _kerberos(True, keytab, ccache, None, None)


def _kerberos(
    is_wanted: bool | None,
    keytab: Path | None,
    ccache: Path | None,
    principal: str | None,
    service: str | None,
) -> KerberosFiles:
    if not (is_wanted or keytab or ccache):
        raise typer.BadParameter(
            "--kerberos-principal and --kerberos-service belong to --kerberos, --keytab or --ccache: give one"
        )
    return KerberosFiles(
        keytab,
        ccache,
        principal or os.environ.get("MOOR_PRINCIPAL", ""),
        service or os.environ.get("MOOR_SERVICE", ""),
    )


def _who(
    user: str | None, password_file: Path | None, token_file: Path | None
) -> tuple[str, Path | None, Path | None]:
    """User, password file and token file; what a flag says goes before every variable."""
    of_flags = (user, password_file, token_file)
    names = ("--user", "--password-file", "--token-file")
    if of_flags == (None, None, None):
        names = ("MOOR_USER", "MOOR_PASSWORD_FILE", "MOOR_TOKEN_FILE")
        found = [os.environ.get(name) or None for name in names]
        user = found[0]
        password_file, token_file = (Path(one) if one else None for one in found[1:])
    elif password_file is not None and user is None:
        user = os.environ.get("MOOR_USER") or None
    if token_file is not None and (user or password_file):
        other = names[0] if user else names[1]
        raise typer.BadParameter(f"{other} and {names[2]} each say who we are: give one of them")
    if password_file is not None and not user:
        raise typer.BadParameter(f"{names[1]}: whose password is it? give {names[0]} too")
    if user == "":
        raise typer.BadParameter("--user: give the name of a user")
    return user or "", password_file, token_file
