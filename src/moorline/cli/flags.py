"""Room: cli. The flags that set settings, one definition for every command that takes them.

    @app.command()
    @with_settings
    def serve(settings: Loaded[Config], …own flags…) -> None: …

The command gets the loaded configuration; `--config`, the flags of COMMON_FLAGS and `--set` appear
in its help with the settings' own help texts.
"""

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

import typer

from moorline.config.database_address import check_no_password
from moorline.config.keys import keys_of
from moorline.config.load import Loaded, load
from moorline.config.settings import Config
from moorline.config.shown import escaped, shown
from moorline.errors import ConfigError

COMMON_FLAGS = (
    "data",
    "node",
    "roles",
    "listen",
    "resolvers",
    "http",
    "http_base_path",
    "mqtt",
    "catalog",
    "catalog_file",
    "log_format",
    "log_level",
    "tls_certificate",
    "tls_key",
    "tls_client_ca",
)

"""Settings with a flag of their own; any other is reached by --set."""

REPEATED = frozenset({"listen", "mqtt"})
"""Those of them that may be given several times."""

SHORTER = {"http_base_path": "--base-path"}
"""Flags that are not called as their settings are."""

P = ParamSpec("P")
R = TypeVar("R")


def with_settings(command: Callable[Concatenate[Loaded[Config], P], R]) -> Callable[..., R]:
    """Gives a command the settings flags, and calls it with what they, and the rest, add up to."""

    @functools.wraps(command)
    def with_flags(*args: Any, **options: Any) -> R:
        file: Path | None = options.pop("config_file")
        assignments: list[str] = options.pop("assignments") or []
        # A flag that was not given is None, or an empty list where it is repeatable.
        named = {name: options.pop(name) for name in COMMON_FLAGS}
        flags = {name: value for name, value in named.items() if value not in (None, [])}
        given = _with_assignments(flags, assignments)
        _check_no_password(given)
        loaded = load(given, os.environ, file)
        return command(loaded, *args, **options)

    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    parameters = [*(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own), *_options()]
    # Typer reads the flags from these two; functools.wraps copied those of the bare command.
    with_flags.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_flags.__annotations__ = {one.name: one.annotation for one in parameters}
    del with_flags.__wrapped__
    return with_flags


def _options() -> list[inspect.Parameter]:
    keys = keys_of(Config)
    options = [_option("config_file", Path, "--config", "The configuration file.", "FILE")]
    for name in COMMON_FLAGS:
        kind = list[str] if name in REPEATED else str
        metavar = "A,B" if name == "roles" else "TEXT"
        flag = SHORTER.get(name, "--" + name.replace("_", "-"))
        again = " Repeatable." if name in REPEATED else ""
        options.append(_option(name, kind, flag, keys[name].help + again, metavar))
    help_text = "Any setting, as in --set keepalive_ms=5_000. Repeatable."
    options.append(_option("assignments", list[str], "--set", help_text, "KEY=VALUE"))
    return options


def _option(name: str, kind: Any, flag: str, help_text: str, metavar: str) -> inspect.Parameter:
    option = typer.Option(
        flag, help=help_text, metavar=metavar, show_default=False, rich_help_panel="Settings"
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def _check_no_password(given: dict[str, object]) -> None:
    """Arguments are in every list of processes; a variable and a file are not."""
    if isinstance(catalog := given.get("catalog"), str):
        check_no_password(
            catalog,
            name="--catalog",
            file_name="--catalog-file",
            shown_by="every list of processes shows",
        )


def _with_assignments(flags: dict[str, object], assignments: list[str]) -> dict[str, object]:
    merged = dict(flags)
    for text in assignments:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(
                f"--set {shown(text)}: accepted: key=value, as in --set keepalive_ms=5_000"
            )
        if name in merged:
            raise ConfigError(f"{escaped(name)} is given twice on the command line: give it once")
        merged[name] = value
    return merged
