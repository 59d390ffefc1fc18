"""One real node with services for all modules that test `moor service`."""

from collections.abc import Iterator

import pytest
from tests.cli.service_node import Moorline, Shell


@pytest.fixture(scope="session")
def moorline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moorline]:
    moorline = Moorline(tmp_path_factory.mktemp("services"))
    with moorline.node:
        yield moorline


@pytest.fixture
def moor(moorline: Moorline, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Runs `moor service`; the modules of other nouns have a `moor` of their own."""
    return Shell(moorline, capsys)
