"""Whether a command printed what its page shows: word by word, but for what differs from run to run.

Times, ids, hashes, amounts with a unit, processes and free ports may be others. `…` in a line of the page
stands for anything, and alone on a line for any lines.
"""

import re
from collections.abc import Sequence

VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d| UTC)?"), "<time>"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "<time>"),
    (re.compile(r"\b\d{8}T\d{6}Z-[0-9a-f]{8}\b"), "<cut>"),
    (re.compile(r"(?<![\w-])[\w-]{32}(?![\w-])"), "<id>"),
    (re.compile(r"\b[0-9a-f]{16,}\b"), "<hash>"),
    (re.compile(r"(pid|in_ms)=\d+"), r"\1=<number>"),
    (re.compile(r"\b\d[\d,.]*( ?)(ms|s|min|h|bytes|KiB|MiB|MB)\b"), "<amount>"),
    (re.compile(r"127\.0\.0\.1:[3-6]\d{4}\b"), "<free port>"),
)


def plain(text: str) -> str:
    for pattern, name in VARYING:
        text = pattern.sub(name, text)
    return " ".join(text.split())


def is_printed(page: Sequence[str], printed: Sequence[str]) -> bool:
    """All that was printed is what the page shows."""
    return _pattern(page).fullmatch(_joined(printed)) is not None


def is_among(page: Sequence[str], printed: Sequence[str]) -> bool:
    """The lines of the page were printed, in their order; others too, perhaps."""
    return is_printed([part for line in page for part in ("…", line)] + ["…"], printed)


def _pattern(page: Sequence[str]) -> re.Pattern[str]:
    parts = []
    for line in page:
        if line.strip() == "…":
            parts.append(r"(?:.*\n)*?")
        elif line.strip():
            parts.append(".*".join(map(re.escape, plain(line).split("…"))) + r"\n")
    return re.compile("".join(parts))


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{plain(line)}\n" for line in lines if line.strip())
