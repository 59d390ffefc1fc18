"""The pictures of the documents can be taken anew."""

from pathlib import Path

import pytest
from tests.console.pictures import VIEWS, of_demo
from tests.records.browser.chromium import why_not

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.timeout(240)]


async def test_each_view_is_a_picture(tmp_path: Path) -> None:
    if (why := why_not()) is not None:
        pytest.skip(why)
    taken = await of_demo(tmp_path)
    assert [path.stem for path in taken] == [*VIEWS]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in taken)
