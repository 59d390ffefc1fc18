"""Room: cli. `moor grant`: rows of rights, added, removed, listed, and why a verdict is as it is."""

from typing import Annotated

import typer

from moorline.cli import output
from moorline.cli.asking import AsJson, asked, plain
from moorline.cli.endpoint import Endpoint, with_node
from moorline.core.access.first_rows import purpose_of
from moorline.wire.access import GrantChanged

app = typer.Typer(
    no_args_is_help=True,
    help="Grant and deny rights, and see why one is granted or not.",
    epilog="Example: moor grant add /topics/orders @sales sl",
)

Path = Annotated[
    str,
    typer.Argument(metavar="PATH", show_default=False, help="As /topics/orders; all below it too."),
]
AskedPath = Annotated[
    str,
    typer.Argument(metavar="PATH", show_default=False, help="As /topics/orders/eu or /topics/#."),
]
Subject = Annotated[
    str,
    typer.Argument(
        metavar="SUBJECT",
        show_default=False,
        help="A principal, or a @group of users; @everyone, @authenticated, @loopback are built in.",
    ),
]
Meanings = (
    "s subscribe and read, w write: publish and send messages, l list, p make queues, services, groups, "
    "sessions and values, d make values on demand, a administer, g change grants, users and quotas."
)
Right = Annotated[
    str, typer.Argument(metavar="RIGHT", show_default=False, help=f"One letter: {Meanings}")
]
Whose = Annotated[
    str, typer.Option("--subject", help="A principal or @group of users; without it: us.")
]
Letters = f"One or more letters: {Meanings}"


@app.command(epilog="Example: moor grant add /topics/orders/secret @everyone s --deny")
@with_node
def add(
    endpoint: Endpoint,
    path: Path,
    subject: Subject,
    letters: Annotated[str, typer.Argument(metavar="LETTERS", show_default=False, help=Letters)],
    deny: Annotated[bool, typer.Option("--deny", help="Deny them in place of granting.")] = False,
    as_json: AsJson = False,
) -> None:
    """Grant rights at a path and all below it, or deny them. Other letters of the row stay."""
    grants, denies = ("", letters) if deny else (letters, "")
    done = asked(endpoint, lambda access: access.add_grant(path, subject, grants, denies=denies))
    _show_row(path, subject, done, as_json=as_json)


@app.command(epilog="Example: moor grant remove /topics/orders @sales")
@with_node
def remove(
    endpoint: Endpoint,
    path: Path,
    subject: Subject,
    letters: Annotated[
        str,
        typer.Argument(metavar="LETTERS", show_default=False, help=f"{Letters} Without them: all."),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Take rights out of a row, granted or denied. What runs by them ends."""
    done = asked(endpoint, lambda access: access.remove_grant(path, subject, letters))
    _show_row(path, subject, done, as_json=as_json)


@app.command("list", epilog="Example: moor grant list /topics --json")
@with_node
def list_rows(
    endpoint: Endpoint,
    path: Annotated[str, typer.Argument(metavar="PATH", help="Rows at and below it.")] = "/",
    subject: Annotated[str, typer.Option("--subject", help="Only rows about this one.")] = "",
    as_json: AsJson = False,
) -> None:
    """List rows by path and subject. Of the rows that a catalog begins with it says what each is for."""
    rows = [plain(row) for row in asked(endpoint, lambda access: access.grants(path, subject))]
    for row in rows:
        row["purpose"] = purpose_of(row["path"], row["subject"], row["made_by"])
    columns = ("path", "subject", "grants", "denies", "made_by", "purpose")
    output.emit(
        as_json,
        rows,
        lambda: output.table(columns, [[row[name] or "-" for name in columns] for row in rows]),
    )


@app.command(epilog="Example: moor grant check w /topics/orders --subject alice")
@with_node
def check(
    endpoint: Endpoint, right: Right, path: AskedPath, subject: Whose = "", as_json: AsJson = False
) -> None:
    """Say whether a right is granted at a path, or for a filter. Ends with 0 either way."""
    is_granted = asked(endpoint, lambda access: access.check(right, path, subject))
    text = "granted" if is_granted else "denied"
    output.emit(as_json, {"is_granted": is_granted}, lambda: output.line(text))


@app.command(epilog="Example: moor grant explain s '/topics/#' --subject alice")
@with_node
def explain(
    endpoint: Endpoint, right: Right, path: AskedPath, subject: Whose = "", as_json: AsJson = False
) -> None:
    """Say which rows decide whether a right is granted."""
    found = plain(asked(endpoint, lambda access: access.explain(right, path, subject)))

    def show() -> None:
        verdict = "granted" if found["is_granted"] else "denied"
        output.line(f"{verdict}: {right} at {found['path']}")
        if not found["decided"]:
            output.line("no row says anything about it")
        for row in found["decided"]:
            output.line(f"by {row['path']} {row['subject']} {_letters(row)}")

    output.emit(as_json, found, show)


@app.command(epilog="Example: moor grant keep")
@with_node
def keep(endpoint: Endpoint, as_json: AsJson = False) -> None:
    """Keep the rows that an upgrade made of what was allowed before; nodes warn of them no more."""
    rows = asked(endpoint, lambda access: access.keep_grants())
    text = f"kept: {output.counted(rows, 'row')} of the upgrade"
    output.emit(as_json, {"rows": rows}, lambda: output.line(text))


def _show_row(path: str, subject: str, done: GrantChanged, *, as_json: bool) -> None:
    facts = {"path": path, "subject": subject, "grants": done.grants, "denies": done.denies}
    text = f"{path} {subject} {_letters(facts)}"
    if not done.grants and not done.denies:
        text = f"no row is about {subject} at {path}"
    output.emit(as_json, facts, lambda: output.line(text))


def _letters(row: dict[str, str]) -> str:
    """As `+sl -w`."""
    signed = [f"+{row['grants']}"] if row["grants"] else []
    return " ".join([*signed, f"-{row['denies']}"] if row["denies"] else signed)
