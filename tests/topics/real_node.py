import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from tests.process.nodes import NodeProcess
from tests.topics.scenes import SMALL, mistakes

import moorline
from moorline.client.moor import Moor

NUMBERS = itertools.count(1)

Connect = Callable[[], Awaitable[Moor]]


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One real node for all scenarios that need nothing special of it."""
    with NodeProcess(tmp_path_factory.mktemp("groups") / "data", *SMALL) as node:
        yield node
        assert mistakes(node) == []


@pytest.fixture
def name() -> str:
    """A topic of the test's own; good for a group's name too."""
    return f"t{next(NUMBERS)}"


@pytest.fixture
def query() -> str:
    """A query of Spark's that nobody else is."""
    return f"query-{next(NUMBERS)}"


@pytest.fixture
async def connect(node: NodeProcess) -> AsyncIterator[Connect]:
    """Opens connections to the node, and closes them at the end."""
    opened: list[Moor] = []

    async def one() -> Moor:
        moor = await moorline.connect(node.address, reconnect=False)
        opened.append(moor)
        return moor

    yield one
    for moor in opened:
        await moor.close()


@pytest.fixture
async def moor(connect: Connect) -> Moor:
    return await connect()
