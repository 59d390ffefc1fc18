"""Room: cli. The pages of docs/reference/, written from the code: commands, limits, errors, metrics.

`python -m moorline.cli.reference docs/reference` writes them anew. Each page is one function that takes the
code as it is; tests compare the pages with it, so that nothing that there is can be missing in them. Settings
have a page of their own (config/reference.py).
"""

import ast
import asyncio
import contextlib
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from moorline import errors, limits
from moorline.cli import output
from moorline.cli.endpoint import PANEL
from moorline.cli.every_command import is_noun, nouns_and_commands

WRITTEN = "<!-- written from the code by `python -m moorline.cli.reference docs/reference` -->"
SETTINGS_PANEL = "Settings"

# --- commands ---------------------------------------------------------------------------------------


def commands_page() -> str:
    lines = [
        "# Commands",
        WRITTEN,
        "",
        "Every command of `moor` with all of its arguments and options. `--help`, or `-h`, prints "
        "the same. What a command ends with is in [exit-codes.md](../exit-codes.md).",
    ]
    shared: dict[str, dict[str, str]] = {PANEL: {}, SETTINGS_PANEL: {}}
    for words, command, context in nouns_and_commands():
        if is_noun(command):
            lines += ["", f"## moor {words}", "", _prose(command.help)]
            continue
        lines += [
            "",
            f"{'###' if ' ' in words else '##'} moor {words}",
            "",
            _prose(command.help),
            "",
        ]
        lines += ["```", " ".join([f"moor {words}", *_usage(command, context)]), "```"]
        own, panels = _records(command, context)
        for panel, records in panels.items():
            shared.setdefault(panel, {}).update(records)
        if own:
            lines += ["", "| | |", "|---|---|", *(_row(left, right) for left, right in own)]
        if panels:
            named = " and ".join(f"[{panel.lower()}](#{_anchor(panel)})" for panel in panels)
            lines += ["", f"And those for {named}."]
        lines += ["", _prose(command.epilog)]
    for panel, records in shared.items():
        lines += ["", f"## {panel}", "", "| | |", "|---|---|"]
        lines += [_row(left, right) for left, right in records.items()]
    return "\n".join(lines) + "\n"


def _usage(command: Any, context: Any) -> list[str]:
    return [piece for piece in command.collect_usage_pieces(context) if piece]


def _records(command: Any, context: Any) -> tuple[list[tuple[str, str]], dict[str, dict[str, str]]]:
    """What is the command's own, and by panel what it shares with others."""
    own: list[tuple[str, str]] = []
    panels: dict[str, dict[str, str]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or "--help" in parameter.opts:
            continue
        left, right = record
        panel = getattr(parameter, "rich_help_panel", None)
        if panel in (PANEL, SETTINGS_PANEL):
            panels.setdefault(panel, {})[left] = right
        else:
            own.append((left, right))
    return own, panels


def _row(left: str, right: str) -> str:
    escaped = _cell(right)
    return f"| `{left.replace('|', chr(92) + '|')}` | {escaped} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")


def _prose(text: str | None) -> str:
    """The paragraphs of a help, each on one line."""
    return "\n\n".join(
        " ".join(one.split()).replace("<", "\\<") for one in (text or "").split("\n\n")
    )


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-")


# --- limits -----------------------------------------------------------------------------------------


class Limit(NamedTuple):
    section: str
    name: str
    value: object
    written: str
    reason: str


def limits_of(source: str) -> Iterator[Limit]:
    """Each constant of a file, with what the file is about, as it is written, and the reason below it."""
    tree = ast.parse(source)
    section = (ast.get_docstring(tree) or "").rstrip(".")
    for place, node in enumerate(tree.body):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=several)], value=ast.Tuple(elts=values)):
                for target, value in zip(several, values, strict=True):
                    assert isinstance(target, ast.Name)
                    yield _limit(section, target.id, value, _reason(tree.body, place))
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                yield _limit(section, name, value, _reason(tree.body, place))


def _limit(section: str, name: str, value: ast.expr, reason: str) -> Limit:
    return Limit(section, name, getattr(limits, name), ast.unparse(value), reason)


def every_limit() -> Iterator[Limit]:
    """Of every file of limits, in the order of their names."""
    for file in sorted(Path(limits.__file__).parent.glob("[!_]*.py")):
        yield from limits_of(file.read_text(encoding="utf-8"))


def _reason(body: list[ast.stmt], place: int) -> str:
    """What stands below it; of several that follow each other line by line, below the last."""
    here = body[place]
    match body[place + 1 : place + 2]:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            return " ".join(text.split())
        case [ast.Assign() | ast.AnnAssign() as following] if (
            here.end_lineno is not None and following.lineno == here.end_lineno + 1
        ):
            return _reason(body, place + 1)
    return ""


def limits_page() -> str:
    lines = [
        "# Limits",
        WRITTEN,
        "",
        "Every bound of the program, with its unit last in its name. They are no settings: where one "
        "can be set, [configuration.md](../configuration.md) has it, and this is its default or its "
        "own bound.",
    ]
    section = None
    for one in every_limit():
        if one.section != section:
            section = one.section
            lines += [
                "",
                f"## {section}",
                "",
                "| limit | value | why |",
                "|---|---|---|",
            ]
        lines.append(f"| `{one.name}` | {_value(one)} | {_cell(one.reason)} |")
    return "\n".join(lines) + "\n"


def _value(one: Limit) -> str:
    if isinstance(one.value, int) and not isinstance(one.value, bool):
        return f"{one.value:,}"
    return f"`{_cell(one.written)}`"


# --- errors -----------------------------------------------------------------------------------------


def all_errors(kind: type[errors.MoorlineError] = errors.MoorlineError) -> Iterator[Any]:
    """The tree, each before what is below it; rooms have some of their own, which nobody else meets."""
    if kind.__module__ in (errors.__name__, output.__name__):
        yield kind
    for below in kind.__subclasses__():
        yield from all_errors(below)


def errors_page() -> str:
    drawn = dict(re.findall(r"[├└]── (\w+) +(\S.*)", errors.__doc__ or ""))
    lines = [
        "# Errors",
        WRITTEN,
        "",
        "Each class of the tree in `moorline.errors`, its code (stable, for programs), and the exit "
        "code of a command that ends with it. `below` is the class that catches it too. What to do "
        "about each is in its text, and in [exit-codes.md](../exit-codes.md).",
        "",
        "| class | below | code | exit code | what it means |",
        "|---|---|---|---|---|",
    ]
    for kind in all_errors():
        meaning = _first_sentence(kind) or drawn.get(kind.__name__, "")
        above = ", ".join(f"`{one.__name__}`" for one in kind.__bases__ if one is not Exception)
        cells = (f"`{kind.__name__}`", above, f"`{kind.code}`", str(kind.exit_code), _cell(meaning))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _first_sentence(kind: type) -> str:
    text = " ".join((vars(kind).get("__doc__") or "").split())
    sentence, dot, _ = text.partition(". ")
    return sentence + dot.strip()


# --- metrics ----------------------------------------------------------------------------------------


class Metric(NamedTuple):
    name: str
    kind: str
    help_text: str


def metrics_in(text: str) -> Iterator[Metric]:
    """What a page of /metrics shows, in its order."""
    helps: dict[str, str] = {}
    for line in text.splitlines():
        match line.split(" ", 3):
            case ["#", "HELP", name, help_text]:
                helps[name] = help_text
            case ["#", "TYPE", name, kind] if not name.endswith("_created"):
                yield Metric(name, kind, helps.get(name, ""))


def metrics_page(shown: Iterable[Metric]) -> str:
    lines = [
        "# Metrics",
        WRITTEN,
        "",
        "What `/metrics` of a node with all roles shows; there is no label but those of "
        "`moorline_node_info` and of the buckets of a histogram. Names that end in `_total` only grow "
        "while a process runs, whatever their type. [deploy.md](../deploy.md) has the alerts and the "
        "dashboard on them.",
        "",
        "| metric | type | what it is |",
        "|---|---|---|",
    ]
    lines += map(_metric_row, shown)
    lines += [
        "",
        "## Of a publisher of values",
        "",
        "A program that publishes values can show these beside its own figures "
        "(`moorline.client.values.figures`).",
        "",
        "| metric | type | what it is |",
        "|---|---|---|",
    ]
    lines += map(_metric_row, of_publishers())
    return "\n".join(lines) + "\n"


def _metric_row(one: Metric) -> str:
    return f"| `{one.name}` | {one.kind} | {_cell(one.help_text)} |"


def of_publishers() -> Iterator[Metric]:
    from moorline.client.values.figures import FIGURES

    for name, (help_text, _) in FIGURES.items():
        yield Metric(f"moorline_{name}", "gauge", help_text)


async def _metrics_of_a_node(folder: Path) -> str:
    """Those of one that is started for this, and nobody uses."""
    from prometheus_client import generate_latest

    from moorline.config.settings import Config
    from moorline.node.node import Node

    config = Config(
        data=str(folder),
        listen=["tcp://127.0.0.1:0"],
        http="127.0.0.1:0",
        mqtt=["mqtt://127.0.0.1:0"],
    )
    async with contextlib.AsyncExitStack() as stack:
        node = Node(config)
        await node.start(stack)
        return generate_latest(node.metrics.registry).decode()


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as data:
        metrics = asyncio.run(_metrics_of_a_node(Path(data) / "node"))
    pages = {
        "commands.md": commands_page(),
        "limits.md": limits_page(),
        "errors.md": errors_page(),
        "metrics.md": metrics_page(metrics_in(metrics)),
    }
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
