"""Room: net. How long the loop and a thread hold the interpreter while the other wants it.

Python's own 5 ms are for threads that compute. A thread that writes files gives the interpreter up at each
write, and waits those 5 ms to have it back while the loop is busy: a commit of eight files takes 40 ms so.
Whoever depends on such a thread holds quick turns for as long.
"""

import sys
from typing import Final

from moorline.limits import THREAD_TURN_S

_USUAL_S: Final = sys.getswitchinterval()

_holders = 0
"""Of all nodes of this process: they share the interpreter."""


def are_quick() -> bool:
    """Whether somebody holds them: several principals are connected."""
    return _holders > 0


def hold_quick_turns() -> None:
    global _holders
    _holders += 1
    sys.setswitchinterval(THREAD_TURN_S)


def release_quick_turns() -> None:
    global _holders
    assert _holders > 0, "nobody holds them"
    _holders -= 1
    if not _holders:
        sys.setswitchinterval(_USUAL_S)
