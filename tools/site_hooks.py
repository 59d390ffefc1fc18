"""What `make docs` tells its generator: to read the pages as GitHub does, which is how they are written."""

import re
from typing import Any

from pymdownx.slugs import slugify

FENCE = re.compile(r"^\s*```")
ITEM = re.compile(r"(?:[-*]|\d+\.) ")


def on_config(config: Any) -> Any:
    """Anchors of headings are those that links in the pages name."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A table, a list and a comment begin a block of their own, with an empty line before them or without."""
    lines: list[str] = []
    in_code = False
    for line in markdown.split("\n"):
        before = lines[-1] if lines else ""
        if not in_code and begins_a_block(before, line):
            lines.append("")
        lines.append(line)
        in_code ^= bool(FENCE.match(line))
    return "\n".join(lines)


def begins_a_block(before: str, line: str) -> bool:
    if not before.strip() or not line.strip():
        return False
    if line.startswith("|") or before.startswith("|"):
        return line.startswith("|") != before.startswith("|")
    if ITEM.match(line):
        return not ITEM.match(before) and not before.startswith(" ")
    return before.startswith("<!--") and before.endswith("-->")
