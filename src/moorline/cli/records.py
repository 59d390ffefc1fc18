"""Room: cli. `moor records`: tables of Postgres that are served to clients.

These commands work on Postgres itself, as the role in the address: who may change a table there says who
may register it. Nodes find what is registered in the databases that their settings name; no node has to be
told.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import typer

from moorline.cli import output
from moorline.cli.confirming import Yes, confirm
from moorline.cli.flags import with_settings
from moorline.cli.installed import need_server
from moorline.cli.records_publish import facts_of, publications_of, publish
from moorline.config.load import Loaded
from moorline.config.settings import Config
from moorline.errors import ConfigError, TableRefused
from moorline.limits import RECORDS_LOCK_MS, RECORDS_LOG_ROWS_MAX

T = TypeVar("T")

app = typer.Typer(
    no_args_is_help=True,
    help="Register tables of Postgres, whose rows are streamed to clients; check and renew them.",
    epilog="Example: moor records add experiments --key id --owner workspace_id --filter state",
)

app.command(epilog="Example: moor records publish experiments --topic tables/experiments")(publish)

Database = Annotated[
    str,
    typer.Option(
        "--database",
        metavar="ADDRESS",
        show_default=False,
        help="The Postgres with the table: postgresql://USER@HOST:PORT/DATABASE without a password, "
        "which PGPASSWORD or ~/.pgpass has; or the name of one of the setting records.databases. "
        "By default the catalog's own.",
    ),
]
DatabaseFile = Annotated[
    Path | None,
    typer.Option(
        "--database-file",
        metavar="FILE",
        show_default=False,
        help="A file with the address, password and all.",
    ),
]
LockMs = Annotated[
    int,
    typer.Option(
        "--lock-ms",
        min=1,
        max=3_600_000,
        help="Time to wait for the lock of the table, each of some times.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the SQL, and change nothing.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON in place of a text.")]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", show_default=False, help="The name that the table is served under."
    ),
]


@app.command(epilog="Example: moor records add experiments --key id --filter workspace_id")
@with_settings
def add(
    settings: Loaded[Config],
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", show_default=False, help="As in SQL, with its schema if need be."
        ),
    ],
    key: Annotated[
        str,
        typer.Option("--key", metavar="A,B", show_default=False, help="The key: 1 to 4 columns."),
    ],
    owner: Annotated[
        str,
        typer.Option(
            "--owner",
            metavar="COLUMN",
            show_default=False,
            help="Whose a row is: rights are by it.",
        ),
    ] = "",
    owner_from: Annotated[
        str,
        typer.Option(
            "--owner-from",
            metavar="PARENT.COLUMN",
            show_default=False,
            help="The same, of the row's parent.",
        ),
    ] = "",
    filters: Annotated[
        str,
        typer.Option(
            "--filter",
            metavar="A,B",
            show_default=False,
            help="Columns that clients may filter by.",
        ),
    ] = "",
    name: Annotated[
        str,
        typer.Option(
            "--name", show_default=False, help="Served under this name; by default its own."
        ),
    ] = "",
    capture: Annotated[
        str, typer.Option("--capture", metavar="log|notify", help="How changes are found.")
    ] = "log",
    log_rows_max: Annotated[
        int,
        typer.Option("--log-rows-max", min=100, max=10**10, help="Lines at which the log ends."),
    ] = RECORDS_LOG_ROWS_MAX,
    reader: Annotated[
        str,
        typer.Option(
            "--reader",
            metavar="ROLE",
            show_default=False,
            help="The nodes' role, if it is another.",
        ),
    ] = "",
    lock_ms: LockMs = RECORDS_LOCK_MS,
    database: Database = "",
    database_file: DatabaseFile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Register a table: it gets two columns, triggers and a small log.

    Nothing is written anew. The lock of the table is held for a moment; if it is not had in time, nothing
    is changed. The index is built beside the writers.
    """
    need_server("moor records")
    from moorline.records.definition import Wanted
    from moorline.records.registration import add as work

    wanted = Wanted(
        table,
        _columns(key),
        owner=owner or None,
        owner_from=owner_from or None,
        filters=_columns(filters),
        capture=_capture(capture),
        name=name,
        log_rows_max=log_rows_max,
        reader=reader,
    )
    added = _on(
        settings,
        database,
        database_file,
        lambda one: work(one, wanted, lock_ms=lock_ms, dry_run=dry_run),
    )
    for warning in added.warnings:
        output.error(f"note: {warning}")
    if dry_run:
        _print_sql(as_json, added.statements)
        return
    facts = {"name": added.name, "capture": wanted.capture}
    output.emit(as_json, facts, lambda: output.line(f"{table} is registered as {added.name}"))


@app.command(epilog="Example: moor records remove experiments --yes")
@with_settings
def remove(
    settings: Loaded[Config],
    name: Name,
    lock_ms: LockMs = RECORDS_LOCK_MS,
    database: Database = "",
    database_file: DatabaseFile = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take every trace of a registration away. The rows stay as they are."""
    need_server("moor records")
    if not dry_run:
        confirm(f"Take every trace of the registration {name} away, its log included?", yes=yes)
    from moorline.records.registration import remove as work

    statements = _on(
        settings,
        database,
        database_file,
        lambda one: work(one, name, lock_ms=lock_ms, dry_run=dry_run),
    )
    if dry_run:
        _print_sql(as_json, statements)
        return
    output.emit(as_json, {"name": name}, lambda: output.line(f"{name} is registered no more"))


@app.command("list", epilog="Example: moor records list --json")
@with_settings
def list_tables(
    settings: Loaded[Config],
    database: Database = "",
    database_file: DatabaseFile = None,
    as_json: AsJson = False,
) -> None:
    """List the registered tables of a database, and the topics that they feed."""
    need_server("moor records")
    from moorline.records.registration import registrations

    tables = _on(settings, database, database_file, lambda one: registrations(one))
    published = publications_of(settings.config) if tables else {}
    rows = [
        {
            "name": one.name,
            "table": one.table,
            "key": list(one.key),
            "owner": one.owner_from or one.owner,
            "filters": list(one.filters),
            "capture": one.capture,
            "is_dropped": one.is_dropped,
            **facts_of(published, one.name),
        }
        for one in tables
    ]
    columns = ("name", "table", "key", "owner", "filters", "capture", "is_dropped", "topic", "home")

    def show() -> None:
        output.table(columns, [[row[column] for column in columns] for row in rows])
        for row in rows:
            if row["problem"]:
                output.error(f"note: {row['name']} is not published now: {row['problem']}")

    output.emit(as_json, rows, show)


@app.command(epilog="Example: moor records check experiments")
@with_settings
def check(
    settings: Loaded[Config],
    name: Name,
    database: Database = "",
    database_file: DatabaseFile = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a table is still as it was registered. Ends with 24 if it is not."""
    need_server("moor records")
    from moorline.records.checking import check as work

    faults = _on(settings, database, database_file, lambda one: work(one, name))
    facts = {"name": name, "faults": [msgspec.structs.asdict(fault) for fault in faults]}
    has_harm = any(fault.is_harm for fault in faults)

    def show() -> None:
        for fault in faults:
            output.line(f"{fault.code}: {fault.text}")
        if not has_harm:
            output.line(f"{name} is as it should be")

    output.emit(as_json, facts, show)
    if has_harm:
        raise typer.Exit(TableRefused.exit_code)


@app.command(epilog="Example: moor records renew experiments")
@with_settings
def renew(
    settings: Loaded[Config],
    name: Name,
    touch: Annotated[
        bool,
        typer.Option(
            "--touch",
            help="Rows that triggers may have missed get a new number, and are sent again.",
        ),
    ] = False,
    lock_ms: LockMs = RECORDS_LOCK_MS,
    database: Database = "",
    database_file: DatabaseFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a table good again behind a restored dump, or writes without triggers. All clients resync."""
    need_server("moor records")
    from moorline.records.renewal import renew as work

    renewed = _on(
        settings,
        database,
        database_file,
        lambda one: work(one, name, lock_ms=lock_ms, is_touching=touch),
    )
    text = (
        f"{name} has a new epoch; {output.counted(renewed.rows + renewed.touched, 'row')} set right"
    )
    output.emit(as_json, msgspec.structs.asdict(renewed), lambda: output.line(text))


@app.command(epilog="Example: moor records types experiments > experiments.ts")
@with_settings
def types(
    settings: Loaded[Config],
    name: Name,
    database: Database = "",
    database_file: DatabaseFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the TypeScript type of a table's rows."""
    need_server("moor records")
    from moorline.records.registered import read_columns
    from moorline.records.typescript import typescript

    columns = _on(settings, database, database_file, lambda one: read_columns(one, name))
    text = typescript(name, columns)
    # Not as a line: it has several, and names in it are escaped as TypeScript has them.
    output.emit(as_json, {"name": name, "typescript": text}, lambda: output.write(text))


def _on(
    settings: Loaded[Config],
    database: str,
    file: Path | None,
    work: Callable[[Any], Coroutine[Any, Any, T]],
) -> T:
    """One piece of work on a connection of its own."""
    from moorline.records.database import connected

    address = _address(settings.config, database, file)

    async def run() -> T:
        async with connected(address) as connection:
            return await work(connection)

    return asyncio.run(run())


def _address(config: Config, database: str, file: Path | None) -> str:
    from moorline.config.database_address import check_no_password, read_address
    from moorline.records.addresses import own_address

    if database and file is not None:
        raise ConfigError("--database and --database-file name two databases: give one of them")
    if file is not None:
        return read_address(file)
    if not database:
        return own_address(config)
    if "://" in database:
        check_no_password(
            database,
            name="--database",
            file_name="--database-file",
            shown_by="every list of processes shows",
        )
        return database
    for one in config.records.database_files():
        if one.name == database:
            return read_address(Path(one.file))
    names = ", ".join(one.name for one in config.records.database_files()) or "none"
    raise ConfigError(
        f"--database takes postgresql://… or a name of records.databases; there are: {names}"
    )


def _columns(text: str) -> tuple[str, ...]:
    """Names apart by commas; one with a comma in it is put into double quotes, as in SQL."""
    import csv

    if not text:
        return ()
    return tuple(next(csv.reader([text], skipinitialspace=True)))


def _capture(text: str) -> Literal["log", "notify"]:
    if text == "log":
        return "log"
    if text == "notify":
        return "notify"
    raise ConfigError(f'--capture "{text}": accepted: log, notify')


def _print_sql(as_json: bool, statements: list[str] | tuple[str, ...]) -> None:
    def show() -> None:
        for text in statements:
            for line in text.rstrip().splitlines():
                output.line(line)
            output.line("")

    output.emit(as_json, {"statements": list(statements)}, show)
