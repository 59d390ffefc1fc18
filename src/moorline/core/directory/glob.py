"""Room: core/directory. Globs over paths: `*` `?` `[ab]` `{a,b}` within a level, `**` over levels.

    glob = Glob.parsed("/oslo/*/temperature")
    glob.root                        "/oslo": nothing that is not below it can match
    glob.judge("/oslo/fjord/x/y")    how it fits, or from where on nothing can

| `*`       | any characters of one level, none too                     |
| `?`       | one character                                             |
| `[a-c]`   | one of these; `[!a]` any other                            |
| `{a,b}`   | one of these texts, which may have wildcards of their own |
| `**`      | a level of its own: any number of levels, as the last one at least one |

A path has no characters that must be escaped but these: `[*]` is a star. Each level is one regular
expression that never goes back behind a star: whatever a stranger asks for, a level is matched in one pass
for each star.
"""

import re
from collections.abc import Iterator
from typing import Final

from moorline.errors import BadPath
from moorline.limits import GLOB_ALTERNATIVES_MAX, PATH_BYTES_MAX, PATH_LEVELS_MAX

_SPECIAL: Final = re.compile(r"[*?\[\]{}]")
_EVERY_LEVEL: Final = "**"
_Level = str | re.Pattern[str] | None
"""A plain text, an expression, or None for any level."""

MATCHES: Final = -1
NOT_YET: Final = -2
"""It does not match, and what is below it may."""


class Glob:
    """Made by `parsed`."""

    __slots__ = ("_exact", "_head", "_tail", "root", "text")

    def __init__(self, text: str, head: list[_Level], tail: "list[list[_Level]] | None") -> None:
        self.text = text
        self._head = head
        """The levels before the first `**`."""
        self._tail = tail
        """What follows each `**`; None where there is none."""
        known = 0
        while known < len(head) and isinstance(head[known], str):
            known += 1
        names = [level for level in head[:known] if isinstance(level, str)]
        self.root = "/" + "/".join(names)
        """The path whose subtree has everything that matches, and which may match itself."""
        self._exact = self.root if tail is None and known == len(head) else None

    @staticmethod
    def parsed(text: str) -> "Glob":
        """Refuses what cannot be one."""
        if not text.startswith("/") or len(text.encode("utf-8", "replace")) > PATH_BYTES_MAX:
            raise _bad(text, f"it begins with / and has at most {PATH_BYTES_MAX} bytes")
        levels = text[1:].split("/")
        if not all(levels) or len(levels) > PATH_LEVELS_MAX:
            raise _bad(text, f"it has 1 to {PATH_LEVELS_MAX} levels, and none is empty")
        parts: list[list[_Level]] = [[]]
        for level in levels:
            if level == _EVERY_LEVEL:
                parts.append([])
            else:
                parts[-1].append(_compiled(level, text))
        return Glob(text, parts[0], parts[1:] if len(parts) > 1 else None)

    def judge(self, path: str) -> int:
        """MATCHES, NOT_YET, or the number of first levels below which nothing matches."""
        if self._exact is not None and path == self._exact:
            return MATCHES
        levels = path[1:].split("/")
        head = self._head
        for place, wanted in enumerate(head):
            if place == len(levels):
                return NOT_YET
            if not _fits(wanted, levels[place]):
                return place + 1
        if self._tail is None:
            return MATCHES if len(levels) == len(head) else len(head)
        return MATCHES if _rest_fits(self._tail, levels, len(head)) else NOT_YET

    def matches(self, path: str) -> bool:
        return self.judge(path) == MATCHES


def is_glob(text: str) -> bool:
    """Whether it has a wildcard: a path may be asked for as one."""
    return _SPECIAL.search(text) is not None


def _fits(wanted: _Level, level: str) -> bool:
    if wanted is None:
        return True
    if isinstance(wanted, str):
        return wanted == level
    return wanted.fullmatch(level) is not None


def _rest_fits(tail: list[list[_Level]], levels: list[str], start: int) -> bool:
    """Each `**` is followed by levels that are looked for at the first place where they fit: a later place
    could only leave less for what follows. The last ones must be at the end."""
    *middle, last = tail
    for wanted in middle:
        place = next(_places(wanted, levels, start, len(levels)), None)
        if place is None:
            return False
        start = place + len(wanted)
    if not last:
        return start < len(levels)
    at = len(levels) - len(last)
    return at >= start and next(_places(last, levels, at, len(levels)), None) == at


def _places(wanted: list[_Level], levels: list[str], start: int, end: int) -> Iterator[int]:
    for place in range(start, end - len(wanted) + 1):
        if all(_fits(one, levels[place + at]) for at, one in enumerate(wanted)):
            yield place


# --- one level ------------------------------------------------------------------------------------


def _compiled(level: str, text: str) -> _Level:
    if level == "*":
        return None
    if _SPECIAL.search(level) is None:
        return level
    if _EVERY_LEVEL in level:
        raise _bad(text, "** is a level of its own")
    alternatives = [_expression(one, text) for one in _expanded(level, text)]
    return re.compile("|".join(alternatives), re.DOTALL)


def _expanded(level: str, text: str) -> list[str]:
    """Without braces: all texts that they stand for."""
    found: list[str] = []
    waiting = [level]
    while waiting:
        one = waiting.pop()
        if len(found) + len(waiting) >= GLOB_ALTERNATIVES_MAX:
            raise _bad(text, f"its braces stand for more than {GLOB_ALTERNATIVES_MAX} texts")
        start = _brace(one)
        if start < 0:
            if "}" in _without_classes(one):
                raise _bad(text, "a } without its {")
            found.append(one)
            continue
        parts, end = _parts(one, start, text)
        waiting += [one[:start] + part + one[end + 1 :] for part in parts]
    return found


def _brace(one: str) -> int:
    """Where the first brace opens that is not in a class."""
    return _without_classes(one).find("{")


def _without_classes(one: str) -> str:
    return re.sub(r"\[[^\]]+\]", lambda found: " " * len(found[0]), one)


def _parts(one: str, start: int, text: str) -> tuple[list[str], int]:
    """The texts of a brace, which may have braces in them, and where it ends."""
    shown = _without_classes(one)
    depth, parts, begin = 0, [], start + 1
    for place in range(start, len(one)):
        sign = shown[place]
        depth += (sign == "{") - (sign == "}")
        if (sign == "," and depth == 1) or (sign == "}" and not depth):
            parts.append(one[begin:place])
            begin = place + 1
        if not depth:
            return parts, place
    raise _bad(text, "a { without its }: braces are within one level")


def _expression(level: str, text: str) -> str:
    """Of one text without braces. Behind a star the first place that fits is taken for good."""
    pieces: list[list[str]] = [[]]
    place = 0
    while place < len(level):
        sign = level[place]
        if sign == "*":
            pieces.append([])
        elif sign == "?":
            pieces[-1].append(".")
        elif sign == "[":
            end = level.find("]", place + 2)
            if end < 0:
                raise _bad(text, "a [ without its ], with something between")
            pieces[-1].append(_class(level[place + 1 : end], text))
            place = end
        elif sign == "]":
            raise _bad(text, "a ] without its [")
        else:
            pieces[-1].append(re.escape(sign))
        place += 1
    first, *others = ("".join(piece) for piece in pieces)
    if not others:
        return first
    *middle, last = others
    return first + "".join(f"(?>.*?{piece})" for piece in middle if piece) + ".*" + last


def _class(inside: str, text: str) -> str:
    is_other = inside.startswith("!") and len(inside) > 1
    shown = inside[1:] if is_other else inside
    signs = ""
    place = 0
    while place < len(shown):
        if shown[place + 1 : place + 2] == "-" and place + 2 < len(shown):
            low, high = shown[place], shown[place + 2]
            if low > high:
                raise _bad(text, f"[{low}-{high}] is no range")
            signs += f"{re.escape(low)}-{re.escape(high)}"
            place += 3
        else:
            signs += re.escape(shown[place])
            place += 1
    return f"[{'^' if is_other else ''}{signs}]"


def _bad(text: str, fault: str) -> BadPath:
    return BadPath(f"{text[:80]!r} is no glob: {fault}")
