"""`make bench`: runs every benchmark and rewrites its table in docs/performance.md.

    python -m bench.run [--quick] [NAME …]

The text of the document is written by people; what stands between `<!-- bench NAME -->` and
`<!-- end -->` is written by this.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs/performance.md"
BENCHMARKS = (
    "wire",
    "calls",
    "queues",
    "checkpoints",
    "log_syncs",
    "drift",
    "topics",
    "topic_share",
    "steps",
    "mqtt",
    "values",
    "pipeline",
    "planning",
    "stalls",
    "fairness",
    "rights",
    "records",
    "reconnect",
    "console",
)
"""`bench/NAME.py` each; the other files are what they share."""


def run(name: str, *, quick: bool) -> list[dict[str, object]]:
    """The rows of one benchmark, printed as they come."""
    command = [sys.executable, "-m", f"bench.{name}", "--json", *(["--quick"] if quick else [])]
    rows: list[dict[str, object]] = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            rows.append(json.loads(line))
    if process.returncode:
        raise SystemExit(f"bench: {name} failed with {process.returncode}")
    return rows


def table(rows: list[dict[str, object]]) -> str:
    lines = [
        "| case | metric | value | unit | peer | peer's value | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [
            row["case"],
            row["metric"],
            _number(row["value"]),
            row["unit"],
            row.get("peer", ""),
        ]
        cells += [_number(row.get("peer_value", "")), _number(row.get("ratio", ""))]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def rewrite(name: str, rows: list[dict[str, object]]) -> None:
    text = DOCUMENT.read_text()
    pattern = re.compile(rf"(<!-- bench {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"bench: {DOCUMENT.name} has no place for {name}: add its two marks")
    DOCUMENT.write_text(pattern.sub(lambda match: match[1] + table(rows) + "\n" + match[2], text))


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:,.3g}"
    return str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; default: all"
    )
    parser.add_argument("--quick", action="store_true", help="each within 50 s; rewrites nothing")
    options = parser.parse_args()
    for name in options.names or BENCHMARKS:
        if name not in BENCHMARKS:
            raise SystemExit(f"bench: there is no {name}: one of {', '.join(BENCHMARKS)}")
        rows = run(name, quick=options.quick)
        if not options.quick:
            rewrite(name, rows)


if __name__ == "__main__":
    main()
