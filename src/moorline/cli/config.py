"""Room: cli. `moor config`: what a node would run with, and where each value comes from."""

from typing import Annotated

import msgspec
import typer

from moorline.cli import output
from moorline.cli.flags import with_settings
from moorline.config.keys import keys_of
from moorline.config.load import Loaded
from moorline.config.settings import Config
from moorline.config.shown import masked_value

app = typer.Typer(
    no_args_is_help=True,
    help="Show and check the configuration.",
    epilog="Example: moor config show",
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
def check(_settings: Loaded[Config]) -> None:
    """Say whether a node would take this configuration; it starts nothing."""
    output.line("configuration ok")


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
