"""Room: cli. `moor quota`: how much a principal, or each one of a group of users, may have."""

from typing import Annotated

import typer

from moorline.cli import output
from moorline.cli.asking import AsJson, asked, plain
from moorline.cli.endpoint import Endpoint, with_node
from moorline.core.access.quota import Quota

app = typer.Typer(
    no_args_is_help=True,
    help="Set, list and show quotas of principals and groups of users.",
    epilog="Example: moor quota set alice queues 100",
)

Subject = Annotated[
    str,
    typer.Argument(metavar="SUBJECT", show_default=False, help="A principal, or @group of users."),
]
Kind = Annotated[
    str,
    typer.Argument(
        metavar="KIND", show_default=False, help=f"One of {', '.join(Quota)}; of each node."
    ),
]


@app.command("set", epilog="Example: moor quota set @sales messages_per_s 5000")
@with_node
def set_quota(
    endpoint: Endpoint,
    subject: Subject,
    kind: Kind,
    amount: Annotated[
        int,
        typer.Argument(
            metavar="AMOUNT",
            min=0,
            max=1 << 60,
            show_default=False,
            help="At most so much; 0 is none.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Set a quota. A principal's own counts first, then the most generous of its groups of users."""
    asked(endpoint, lambda access: access.set_quota(subject, kind, amount))
    facts = {"subject": subject, "kind": kind, "amount": amount}
    output.emit(as_json, facts, lambda: output.line(f"{subject} {kind} {amount}"))


@app.command(epilog="Example: moor quota remove alice queues")
@with_node
def remove(endpoint: Endpoint, subject: Subject, kind: Kind, as_json: AsJson = False) -> None:
    """Take a quota away: the next one counts, of a group of users or of the settings."""
    is_changed = asked(endpoint, lambda access: access.set_quota(subject, kind, None))
    text = f"{subject} has no {kind} of its own" + ("" if is_changed else ", and had none")
    output.emit(as_json, {"is_changed": is_changed}, lambda: output.line(text))


@app.command("list", epilog="Example: moor quota list --json")
@with_node
def list_quotas(
    endpoint: Endpoint,
    subject: Annotated[str, typer.Option("--subject", help="Only those of this one.")] = "",
    as_json: AsJson = False,
) -> None:
    """List quotas by subject and kind, as the catalog has them; see `moor config show` for the settings."""
    rows = [plain(row) for row in asked(endpoint, lambda access: access.quotas(subject))]
    columns = ("subject", "kind", "amount")
    output.emit(
        as_json,
        rows,
        lambda: output.table(columns, [[row[name] for name in columns] for row in rows]),
    )


@app.command(epilog="Example: moor quota show alice")
@with_node
def show(
    endpoint: Endpoint,
    principal: Annotated[
        str,
        typer.Argument(
            metavar="[PRINCIPAL]",
            show_default=False,
            help="Of whom, @loopback for those on the node's machine without a proof; by default your own.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show what a principal has at this node, beside its bounds. Of a rate, what it took of this second."""
    found = asked(endpoint, lambda access: access.quota_usage(principal))
    rows = [plain(row) for row in found.usage]
    facts = {"principal": found.principal, "usage": rows}
    columns = ("quota", "used", "bound")
    shown = [
        [row["quota"], row["used"], "none" if row["bound"] is None else row["bound"]]
        for row in rows
    ]
    output.emit(as_json, facts, lambda: output.table(columns, shown))
