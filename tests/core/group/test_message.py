"""What Borrowers and Leaders say: whole on the wire, told apart by their tags, and bounded."""

from typing import get_args

import msgspec
import pytest

from moorline.core.delivery.progress import Cursor
from moorline.core.group.message import (
    BorrowerMessage,
    Disconnect,
    FromBorrower,
    FromLeader,
    Grant,
    GroupMessage,
    LeaderMessage,
    LeaderWanted,
    UpdateProgress,
    lease_item,
    report_item,
)
from moorline.core.stream import RETENTION, Gap, Stream
from moorline.limits import LEASE_LOSSES_MAX, MEMBER_LENGTH_MAX

STREAM = Stream("n1", 2, 3)


@pytest.mark.parametrize(
    "message",
    [
        LeaderWanted("b1", "ann", 16),
        UpdateProgress("b1", 1, 2, 3, None, 0, True),
        UpdateProgress(
            "b1",
            1,
            2,
            3,
            Cursor(4, ((6, 8),), ((9, 1),)),
            8,
            False,
            ((1, 2),),
            (Gap(0, 1, RETENTION),),
        ),
        Disconnect("b1", 1, ((3, Cursor(4)),), ((3, (Gap(0, 1, RETENTION),)),)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_a_borrower_says_arrives_whole(message: BorrowerMessage) -> None:
    data = msgspec.msgpack.encode(message)
    assert msgspec.msgpack.decode(data, type=BorrowerMessage) == message


def test_a_grant_arrives_whole() -> None:
    grant = Grant("b1", 1, 2, STREAM, Cursor(4), 5, ((4, 9),))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(grant), type=LeaderMessage) == grant


def test_every_message_has_a_tag_of_its_own_and_a_direction() -> None:
    kinds = [*get_args(BorrowerMessage), *get_args(LeaderMessage)]
    assert len({kind.__struct_config__.tag for kind in kinds}) == len(kinds) == 11
    assert all(issubclass(kind, FromBorrower) for kind in get_args(BorrowerMessage))
    assert all(issubclass(kind, FromLeader) for kind in get_args(LeaderMessage))
    # Whatever a Leader says carries its epoch; what a Borrower says, as soon as it knows one.
    for kind in kinds:
        assert issubclass(kind, GroupMessage)
        fields = {field.name for field in msgspec.structs.fields(kind)}
        assert "epoch" in fields or kind is LeaderWanted


@pytest.mark.parametrize(
    "message",
    [
        LeaderWanted("b" * (MEMBER_LENGTH_MAX + 1), "ann", 16),
        UpdateProgress("b", 1, 2, 3, None, 0, True, (), (Gap(0, 1, "x"),) * (LEASE_LOSSES_MAX + 1)),
    ],
    ids=["a long name", "many losses"],
)
def test_what_is_beyond_its_bound_is_refused(message: BorrowerMessage) -> None:
    data = msgspec.msgpack.encode(message)
    with pytest.raises(msgspec.ValidationError, match="length"):
        msgspec.msgpack.decode(data, type=BorrowerMessage)


def test_items_of_digests_do_not_run_together() -> None:
    assert lease_item(1, Stream("n", 11, 1)) != lease_item(11, Stream("n", 1, 1))
    assert report_item(1, 11) != report_item(11, 1)
