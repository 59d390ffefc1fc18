"""Room: cli. `moor config`: what a node would run with, and where each value comes from."""

import os
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from moorline.cli import output
from moorline.cli.flags import with_settings
from moorline.config.keys import keys_of
from moorline.config.load import FILE_NAME, Loaded
from moorline.config.settings import Config
from moorline.config.shown import masked_value
from moorline.errors import FolderUnusable

app = typer.Typer(
    no_args_is_help=True,
    help="Write, show and check the configuration.",
    epilog="Example: moor config show",
)


@app.command(epilog="Example: moor config init /etc/moorline/moorline.toml")
def init(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The file to make; - is stdout.")
    ] = FILE_NAME,
    as_json: Annotated[bool, typer.Option("--json", help="JSON in place of a text.")] = False,
) -> None:
    """Write a configuration file with every setting, each explained and commented out at its default.

    A file that is there stays as it is. The new one can be read by its owner alone, since passwords may
    go into it.
    """
    from moorline.config.template import template

    if file == "-":
        output.emit(as_json, {"text": template()}, lambda: output.write(template()))
        return
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise typer.BadParameter(f"{file} is there already, and stays as it is") from None
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be made: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(template())
    output.emit(
        as_json,
        {"file": file},
        lambda: output.line(
            f"{file} is made; a node takes it by --config {file}, or where it stands"
        ),
    )


class Setting(msgspec.Struct, frozen=True):
    """A row of `config show`."""

    key: str
    value: object
    source: str
    help: str


@app.command(epilog="Example: moor config show --set log_level=debug --json")
@with_settings
def show(
    settings: Loaded[Config],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list of objects.")] = False,
) -> None:
    """Print every setting, its value and where it came from. Passwords are masked.

    They are as a node started with the same flags, variables and file would have them.
    A running one is not asked.
    """
    rows = settings_of(settings)
    output.emit(
        as_json,
        rows,
        lambda: output.table(
            ("key", "value", "source"), [(row.key, _worded(row.value), row.source) for row in rows]
        ),
    )


@app.command(epilog="Example: moor config check --config /etc/moorline/moorline.toml")
@with_settings
def check(
    settings: Loaded[Config],
    as_json: Annotated[bool, typer.Option("--json", help="JSON in place of a text.")] = False,
) -> None:
    """Say whether a node would take this configuration, its files and its folder; it starts nothing.

    In the folder, or the nearest one above it that is there, a file is made and removed again.
    """
    config = settings.config
    if config.tls_certificate or config.tls_key or config.tls_client_ca or config.tls_node_ca:
        from moorline.net.tls import server_context

        server_context(
            config.tls_certificate,
            config.tls_key,
            config.tls_client_ca,
            node_ca=config.tls_node_ca,
            client_crl=config.tls_client_crl,
            minimum=config.tls_minimum,
        )
    _check_addresses(config)
    _check_keytab(config)
    _check_issuer(config)
    _check_folder(Path(config.data).absolute())
    output.emit(as_json, {"ok": True}, lambda: output.line("configuration ok"))


def _check_addresses(config: Config) -> None:
    """The files that hold addresses of databases, as a start reads them."""
    from moorline.config.database_address import read_address

    files = [config.catalog_file] if config.catalog_file else []
    for file in (*files, *(one.file for one in config.records.database_files())):
        read_address(Path(file))


def _check_keytab(config: Config) -> None:
    """As the start does, which would end on it; where the package is missing, that is told."""
    if not config.kerberos.keytab:
        return
    import asyncio

    from moorline.net.kerberos import KerberosService, check_keytab_file

    check_keytab_file(Path(config.kerberos.keytab))
    service = KerberosService(
        Path(config.kerberos.keytab),
        config.kerberos.service,
        clock_skew_s=config.kerberos.clock_skew_s,
    )
    asyncio.run(service.check())


def _check_issuer(config: Config) -> None:
    """The files of `[oidc]`, as a start reads them; the issuer itself is not asked."""
    if config.oidc.issuer:
        from moorline.access.issuer import Issuer

        Issuer(config.oidc)


def _check_folder(folder: Path) -> None:
    """Whether a node could use the folder, or make it: a file is made there, or in the folder that is there
    of those above it, and removed."""
    there = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    if not there.is_dir():
        raise FolderUnusable(f"the data folder {folder} cannot be used: {there} is not a folder")
    if not os.access(there, os.R_OK | os.W_OK | os.X_OK):
        raise FolderUnusable(
            f"the data folder {folder} cannot be used: this user may not write to {there}: give it the "
            "right to, or choose another --data"
        )
    try:
        # Tried, not asked: root may do everything by its rights, and yet not write to a read-only disk or
        # to a folder of the kernel's.
        with tempfile.NamedTemporaryFile(dir=there, prefix=".moorline-check-") as file:
            file.write(b"0")
            file.flush()
    except OSError as error:
        raise FolderUnusable(
            f"the data folder {folder} cannot be used: no file can be written in {there}: {error.strerror}: "
            "choose another --data"
        ) from None


def settings_of(loaded: Loaded[Config]) -> list[Setting]:
    rows: list[Setting] = []
    for name, key in keys_of(type(loaded.config)).items():
        value: object = loaded.config
        for part in name.split("."):
            value = getattr(value, part)
        rows.append(Setting(name, masked_value(value), loaded.sources[name], key.help))
    return rows


def _worded(value: object) -> object:
    """Text, so that the column stands left; nothing set is a dash."""
    if value in ("", []):
        return None
    return value if isinstance(value, list) else str(value)
