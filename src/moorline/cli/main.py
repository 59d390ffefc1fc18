"""Room: cli. The entry of `moor`: its commands, and how a command that fails ends.

The module of a noun is imported when the noun is asked for. It keeps heavy imports (asyncpg, the embedded
Postgres, numpy, pyarrow) inside its functions: `moor --help` imports every module, and must be quick.
"""

import gc
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer._completion_shared import get_completion_script
from typer.core import TyperGroup

from moorline.cli import output
from moorline.cli.backup import backup, restore
from moorline.cli.bench import bench
from moorline.cli.console import console
from moorline.cli.demo import demo
from moorline.cli.doctor import doctor
from moorline.cli.drain import drain
from moorline.cli.resolver import ls, resolve
from moorline.cli.serve import serve
from moorline.cli.status import status
from moorline.cli.top import top
from moorline.cli.whoami import whoami
from moorline.errors import ConfigError, MoorlineError
from moorline.version import __version__

EXIT_INTERNAL = 1
EXIT_INTERRUPTED = 130
EXIT_OUTPUT_CLOSED = 141
"""As a shell reports a program that SIGPIPE ended."""


NOUNS = {
    "config": "config",
    "context": "context",
    "node": "node",
    "home": "home",
    "cluster": "cluster_trial",
    "queue": "queue_mending",
    "service": "service",
    "topic": "topic_deleting",
    "group": "group",
    "client": "client",
    "session": "session",
    "journal": "journal",
    "pipeline": "pipeline",
    "clock": "clock",
    "audit": "audit",
    "cert": "cert",
    "keytab": "keytab",
    "grant": "grant",
    "user": "user",
    "quota": "quota",
    "owner": "owner",
    "value": "value",
    "records": "records_watch",
}
"""The module whose `app` has the commands of each noun."""


class _Moor(TyperGroup):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # The names are known at once, for the list and for who mistypes one.
        self.commands.update({name: TyperGroup(name=name) for name in NOUNS})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A noun in full, made now: to make all of them for each command takes a tenth of a second."""
        if cmd_name not in NOUNS:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"moorline.cli.{NOUNS[cmd_name]}")
        found = typer.main.get_group(module.app)
        found.name = cmd_name
        return found

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Typer prints its help itself, and so meets a stdout that is full or that nobody reads."""
        try:
            return super().main(*args, **kwargs)
        except SystemExit as error:
            # So it ends where nobody reads its help, and stdout is another file by then.
            if isinstance(error.__context__, BrokenPipeError):
                raise output.OutputClosed from None
            raise
        except OSError:
            # What stdout did not take is still to be written, and fails as ours does.
            output.write("")
            raise

    def invoke(self, ctx: Any) -> Any:
        """Typer ends silently on any broken pipe; only that of stdout is nobody's mistake."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            output.check_reader()
            raise RuntimeError("a broken pipe that is not that of stdout") from error


app = typer.Typer(
    name="moor",
    cls=_Moor,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},  # of every command below it, too
    epilog="Example: moor serve --data ./moorline-data",
)
app.command("serve", epilog="Example: moor serve --data ./moorline-data --log-format json")(serve)
app.command("doctor", epilog="Example: moor doctor --data ./moorline-data --quick")(doctor)
app.command("status", epilog="Example: moor status --address tcp://127.0.0.1:7411 --json")(status)
app.command("top", epilog="Example: moor top --interval 1")(top)
app.command("bench", epilog="Example: moor bench --seconds 3 --yes")(bench)
app.command("console", epilog="Example: moor console --open")(console)
app.command("demo", epilog="Example: moor demo --serve")(demo)
app.command("drain", epilog="Example: moor drain node-2 --rate 500")(drain)
app.command("backup", epilog="Example: moor backup /backups/monday --data ./moorline-data")(backup)
app.command("restore", epilog="Example: moor restore /backups/monday --data ./moorline-data")(
    restore
)
app.command("whoami", epilog="Example: moor whoami --json")(whoami)
app.command("resolve", epilog="Example: moor resolve /oslo/temperature --json")(resolve)
app.command("ls", epilog="Example: moor ls '/oslo/**' --watch")(ls)


def main() -> None:
    """What the installed program `moor` calls."""
    code = run(sys.argv[1:])
    # Else Python looks through all that was ever imported for garbage, more than once, before it ends.
    gc.freeze()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command; its exit code. Nothing but a mistake of ours leaves as an exception."""
    output.prepare()
    try:
        match arguments:
            case ["--show-completion", ("bash" | "zsh" | "fish") as shell]:
                # Typer would print that of the shell that it was started by, whichever is named.
                script = get_completion_script(
                    prog_name="moor", complete_var="_MOOR_COMPLETE", shell=shell
                )
                output.write(f"{script}\n")
                return 0
        # Typer answers with the code of a typer.Exit, or with what the command returned.
        answer = app(args=list(arguments), prog_name="moor", standalone_mode=False)
        output.write("")  # flushes, so that a closed pipe is met here and not at Python's end
        return answer if isinstance(answer, int) else 0
    except output.OutputClosed:
        output.close_stdout()
        return EXIT_OUTPUT_CLOSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except typer.Abort:
        output.error("stopped")
        return EXIT_INTERNAL
    except typer.TyperException as error:
        return _usage(error)
    except MoorlineError as error:
        _traceback()
        # The lines of a ConfigError are our own, one for each mistake, with the values escaped. Any
        # other text may quote a peer and is one line, whatever it holds.
        lines = str(error).split("\n") if isinstance(error, ConfigError) else [str(error)]
        for text in lines:
            output.error(text or type(error).__name__)
        if isinstance(error, output.OutputFailed):
            output.close_stdout()
        return error.exit_code
    except Exception as error:
        what = f"internal error: {type(error).__name__}: {error}"
        hint = "" if _traceback() else " (set MOOR_DEBUG=1 for the traceback)"
        output.error(what + hint)
        return EXIT_INTERNAL


def _print_version(wanted: bool) -> None:
    if wanted:
        output.line(f"moor {__version__}")
        raise typer.Exit


@app.callback()
def moor(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """A subscription server whose two ends can prove that they agree."""


def _usage(error: typer.TyperException) -> int:
    """A wrong command line: one line, like every other error."""
    context: typer.Context | None = getattr(error, "ctx", None)
    text = error.format_message()
    hint = f" (see {context.command_path} --help)" if context else ""
    if text:  # `moor` or `moor config` alone has printed its help and has no more to say
        output.error(text.rstrip(".") + hint)
    return error.exit_code


def _traceback() -> bool:
    wanted = os.environ.get("MOOR_DEBUG", "") not in ("", "0")
    if wanted:
        traceback.print_exc()
    return wanted


if __name__ == "__main__":
    main()
