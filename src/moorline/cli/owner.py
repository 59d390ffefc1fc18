"""Room: cli. `moor owner`: who owns what, and whose the old names are."""

from typing import Annotated

import typer

from moorline.cli import output
from moorline.cli.asking import AsJson, asked, plain
from moorline.cli.confirming import Yes, confirm
from moorline.cli.endpoint import Endpoint, with_node

app = typer.Typer(
    no_args_is_help=True,
    help="See owners, and give what belongs to an old name to a principal.",
    epilog="Example: moor owner list",
)


@app.command("list", epilog="Example: moor owner list --json")
@with_node
def list_owners(endpoint: Endpoint, as_json: AsJson = False) -> None:
    """List who owns sessions and groups, old names, and old certificates with queues at this node."""
    rows = [plain(row) for row in asked(endpoint, lambda access: access.owners())]
    columns = ("name", "principal", "sessions", "groups", "queues")
    output.emit(
        as_json,
        rows,
        lambda: output.table(
            columns,
            [
                (row["name"] or "-", row["principal"] or "-", *_counts(row), row["queues"])
                for row in rows
            ],
        ),
    )


@app.command("map", epilog="Example: moor owner map 3f9a… alice --yes")
@with_node
def map_owner(
    endpoint: Endpoint,
    known_as: Annotated[
        str,
        typer.Argument(
            metavar="OLD",
            show_default=False,
            help="What it is known as, such as a fingerprint in hex.",
        ),
    ],
    principal: Annotated[
        str,
        typer.Argument(metavar="PRINCIPAL", show_default=False, help="Whose it is from now on."),
    ],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give what belongs to an old name to a principal: sessions and groups now, queues where they are."""
    confirm(f"Give all that belongs to {known_as} to {principal}, for good?", yes=yes)
    done = plain(asked(endpoint, lambda access: access.map_owner(known_as, principal)))
    sessions, groups = _counts(done)
    counts = f"{output.counted(sessions, 'session')} and {output.counted(groups, 'group')}"
    text = f"{principal} owns {counts} more"
    output.emit(as_json, done, lambda: output.line(text))


def _counts(row: dict[str, int]) -> tuple[int, int]:
    return row["sessions"], row["groups"]
