"""Messages of a service on the wire: every one fits a block, and a bad one is its sender's mistake."""

import random

import msgspec
import pytest
from tests.services.interception import Sniffer
from tests.services.service_server import NODE_ID, ServiceServer, associated

from moorline.client.service_exchange import LISTS_PER_BLOCK
from moorline.core.sets.asker import LEAF_COUNT, LISTED_BYTES, Mode
from moorline.core.sets.digest import Digest
from moorline.core.sets.estimate import ESTIMATE_BYTES
from moorline.core.sets.prefix import RangeDigest
from moorline.errors import CallFailed, ConnectionLost
from moorline.ids import NO_HOME
from moorline.limits import BLOCK_BYTES_MAX
from moorline.wire.service import (
    PAYLOAD_PER_BLOCK,
    PREFIXES_PER_BLOCK,
    QUEUES_PER_BLOCK,
    AskLists,
    AskRanges,
    Associate,
    Associated,
    Dissociate,
    ListsTold,
    PayloadBlock,
    RangesTold,
    ServiceSubscribed,
    SubscribeService,
)

pytestmark = pytest.mark.process


# --- D29: what an exchange sends ------------------------------------------------------------------


SHAPES = {
    "verify only": (50, 0, 0),
    "a short list": (50, 10, 10),
    "a sketch in one block": (3_000, 20, 20),
    "a sketch in several blocks": (7_000, 900, 900),
    "a list in several blocks": (6_000, 0, 5_500),
    "everything again": (3_000, 3_000, 0),
    "everything away": (3_000, 0, 3_000),
}


@pytest.mark.parametrize("mode", ["as chosen", "ranges"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_d29_every_message_of_the_exchange_fits_a_block(
    node: ServiceServer, sniffer: Sniffer, monkeypatch: pytest.MonkeyPatch, shape: str, mode: str
) -> None:
    """D29: 16,384 bytes, in both directions, for several sizes, by sketch, list and ranges."""
    count, lost_by_node, lost_by_client = SHAPES[shape]
    queues = await associated(node, count)
    await node.lose(queues[:lost_by_node])
    with node.listed() as listed:
        listed.remove(queues[count - lost_by_client :])
    if mode == "ranges":
        monkeypatch.setattr(
            "moorline.core.sets.answerer.sketch_or_list", lambda *_: (Mode.EQUAL, 0)
        )
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        assert service.report.digest == Digest.of(queues[: count - lost_by_client])
    for message in sniffer.sent:
        size = len(sniffer.encoder.encode(message))
        assert size <= BLOCK_BYTES_MAX, f"{type(message).__name__} has {size} bytes"
    if mode == "ranges" and lost_by_node + lost_by_client:
        assert sniffer.of(RangesTold)
        assert sniffer.of(ListsTold)
    if shape.endswith("several blocks"):
        kind = ServiceSubscribed if mode == "as chosen" else RangesTold
        assert max(sniffer.sizes(kind)) > BLOCK_BYTES_MAX // 2, "some are long"
        assert bool(sniffer.of(PayloadBlock)) is (mode == "as chosen")


async def test_d29_an_answer_that_refuses_a_whole_block_fits_a_block(
    node: ServiceServer, sniffer: Sniffer
) -> None:
    """D29: every queue of an Associate was deleted meanwhile, and each is named with the reason."""
    with node.listed() as listed:
        listed.bind(NO_HOME, NODE_ID, "n")
        queues = [random.Random(n).randbytes(24) for n in range(QUEUES_PER_BLOCK)]
        listed.add(queues, NO_HOME)
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        assert len(service.report.lost) == QUEUES_PER_BLOCK
    assert max(sniffer.sizes(Associated)) <= BLOCK_BYTES_MAX


# --- D29: the largest there can be ----------------------------------------------------------------


WORST = {
    "Associate": Associate(1 << 32, [b"q" * 24] * QUEUES_PER_BLOCK),
    "Dissociate": Dissociate(1 << 32, [(64, (1 << 64) - 1)] * PREFIXES_PER_BLOCK),
    "AskRanges": AskRanges(1 << 32, [(60, (1 << 60) - 1)] * PREFIXES_PER_BLOCK),
    "RangesTold": RangesTold(
        1 << 32, [RangeDigest((1 << 32) - 1, (1 << 64) - 1)] * PREFIXES_PER_BLOCK
    ),
    "ListsTold": ListsTold(1 << 32, [bytes(LEAF_COUNT * LISTED_BYTES)] * LISTS_PER_BLOCK),
    "SubscribeService": SubscribeService(
        1 << 32, 1 << 40, bytes(16), bytes(ESTIMATE_BYTES), 1 << 24, 64
    ),
    "ServiceSubscribed": ServiceSubscribed(
        1 << 32, 1 << 40, bytes(16), 4, 1 << 24, 1 << 32, bytes(PAYLOAD_PER_BLOCK)
    ),
    "PayloadBlock": PayloadBlock(bytes(PAYLOAD_PER_BLOCK)),
}


@pytest.mark.parametrize("name", WORST)
def test_d29_the_largest_message_of_each_kind_fits_a_block(name: str) -> None:
    """D29: every field as long as it can be, with as many of each as the senders put together."""
    assert len(msgspec.msgpack.encode(WORST[name])) <= BLOCK_BYTES_MAX


# --- a message that says what cannot be -----------------------------------------------------------


async def test_a_prefix_beyond_all_hashes_is_the_callers_mistake(node: ServiceServer) -> None:
    """Not an INTERNAL error with a stack trace in the node's log."""
    pair = (1, (1 << 64) - 1)
    async with node.connect() as moor, moor.service(node.list_of()):
        with pytest.raises((CallFailed, ConnectionLost)) as caught:
            await moor._caller.call(lambda call: AskLists(call, [pair]), ListsTold)
        assert "INTERNAL" not in str(caught.value)
