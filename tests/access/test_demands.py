"""What handlers refuse by themselves is told, once, and is still refused."""

from typing import Any

import pytest

from moorline.access.demands import Demands
from moorline.access.guard import denied
from moorline.core.access.right import PUBLISH
from moorline.errors import Denied, NotFound
from moorline.wire.service import Associate


class Heard:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str, str]] = []

    def refused(self, _session: Any, /, act: str, path: str, code: str) -> None:
        self.lines.append((act, path, code))


async def test_a_run_of_calls_that_is_refused_is_one_line() -> None:
    heard = Heard()

    async def refuse(_session: Any, calls: list[Associate]) -> None:
        raise denied(PUBLISH, "/services") if len(calls) > 1 else NotFound("nothing")

    telling = Demands(heard).telling_run(refuse)
    calls = [Associate(number, []) for number in range(3)]
    with pytest.raises(Denied):
        await telling(None, calls)
    assert heard.lines == [("Associate", "/services", "DENIED")]
    with pytest.raises(NotFound):
        await telling(None, calls[:1])
    assert len(heard.lines) == 1, "what is not there is no refusal of a right"
