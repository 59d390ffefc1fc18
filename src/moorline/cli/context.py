"""Room: cli. `moor context`: several clusters by name, and which of them commands reach."""

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from moorline.cli import contexts, output
from moorline.cli.contexts import FILES, NAME, Context
from moorline.cli.endpoint import with_reaching_flags

app = typer.Typer(
    no_args_is_help=True,
    help="Name clusters, and choose the one that commands reach.",
    epilog="Example: moor context add harbour --address tls://harbour-1.example:7413 --ca ca.pem",
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON, one object a line.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")]


@app.command(
    epilog="Example: moor context add harbour --address tls://harbour-1.example:7413 --ca ca.pem "
    "--token-file harbour.token"
)
@with_reaching_flags
def add(
    given: dict[str, Any],
    name: Name,
    use: Annotated[bool, typer.Option("--use", help="Also choose it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Give an address, and what proves us there, a name. One of that name is replaced.

    Files are named and not read: a context holds no secret. Nobody is called.
    """
    if not NAME.fullmatch(name):
        raise typer.BadParameter("a name has 1 to 63 of a-z, 0-9, dot, - and _")
    if not given.get("address"):
        raise typer.BadParameter("--address: where is it?")
    values = {
        key: os.path.abspath(value) if key in FILES else value
        for key, value in given.items()
        if value is not None
    }
    made = Context(**values)
    kept = contexts.kept()
    kept.contexts[name] = made
    # The first one is not chosen by itself: what commands reached before is what they reach now.
    if use:
        kept.current = name
    contexts.keep(kept)
    chosen = ", and chosen" if kept.current == name else f": moor context use {name} chooses it"
    output.emit(
        as_json, _row(name, made, kept.current), lambda: output.line(f"{name} is kept{chosen}")
    )


@app.command(epilog="Example: moor context use harbour")
def use(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Without it: none is chosen any more.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Choose the context that commands reach where neither a flag nor a variable names a node."""
    kept = contexts.kept()
    if name is not None:
        contexts.named(name)
    kept.current = name or ""
    contexts.keep(kept)
    words = f"commands reach {name} now" if name else "no context is chosen"
    output.emit(as_json, {"current": name}, lambda: output.line(words))


@app.command("list", epilog="Example: moor context list --json")
def list_(as_json: AsJson = False) -> None:
    """List the contexts of this user; the chosen one has a star."""
    kept = contexts.kept()
    rows = [_row(name, one, kept.current) for name, one in sorted(kept.contexts.items())]
    if as_json:
        for row in rows:
            output.emit_json(row)
        return
    shown = [("*" if row["is_current"] else "", row["context"], row["address"]) for row in rows]
    output.table(("", "context", "address"), shown)


@app.command(epilog="Example: moor context show harbour")
def show(name: Name, as_json: AsJson = False) -> None:
    """Show one context: its address and the files that it names."""
    row = _row(name, contexts.named(name), contexts.kept().current)
    output.emit(as_json, row, lambda: output.table(("what", "value"), list(row.items())))


@app.command(epilog="Example: moor context remove harbour")
def remove(name: Name, as_json: AsJson = False) -> None:
    """Forget a context. The files that it names stay."""
    contexts.named(name)
    kept = contexts.kept()
    del kept.contexts[name]
    if kept.current == name:
        kept.current = ""
    contexts.keep(kept)
    output.emit(as_json, {"context": name}, lambda: output.line(f"{name} is forgotten"))


def _row(name: str, one: Context, current: str) -> dict[str, Any]:
    facts = {key: str(value) if isinstance(value, Path) else value
             for key, value in msgspec.to_builtins(one).items()}  # fmt: skip
    return {"context": name, "is_current": name == current, **facts}
