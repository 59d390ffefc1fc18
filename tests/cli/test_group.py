"""`moor group` against a real node, as a person and as a script."""

import asyncio
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import Commands, proving, running
from tests.process.nodes import MOOR, NodeProcess, clean_environment

from moorline.client.connecting import connect
from moorline.client.moor import Moor as Client
from moorline.errors import SubscriptionEnded

pytestmark = pytest.mark.process

COMMANDS = ["list", "show", "watch", "seek", "create", "change", "delete", "kick"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    yield from running(tmp_path_factory, "group", "--set=streams.shards=2")


class Moor(Commands):
    noun = "group"


@pytest.fixture
def moor(node: NodeProcess) -> Moor:
    return Moor(node)


async def published(client: Client, topic: str, count: int) -> None:
    for number in range(count):
        await client.publish(topic, b"%d" % number)


def test_a_group_is_made_listed_and_ended(moor: Moor) -> None:
    name = "$shared/made/orders/#"
    assert moor.lines("create", name, "--deliveries-max", "3") == ["made"]
    assert moor.lines("create", name) == ["it was there already, and is as it was"]
    # The same group under its other name.
    assert moor.json("create", "$share/made/orders/#", "--json")[0]["is_new"] is False
    (facts,) = [one for one in moor.json("list", "--json") if one["group"] == name]
    assert (facts["deliveries_max"], facts["leader"]) == (3, "")
    head, *rows = moor.lines("list")
    assert head.split() == ["group", "leader", "epoch", "deliveries", "max", "created"]
    assert any(row.startswith(name) for row in rows)
    assert "give --yes" in moor.error(2, "delete", name)
    assert moor.lines("delete", name, "--yes") == []
    assert "there is no group" in moor.error(12, "show", name)


async def test_show_has_members_and_places(moor: Moor) -> None:
    name = "$shared/shown/shown/#"
    async with connect(moor.node.address) as client:
        subscription = await client.subscribe(name)
        await published(client, "shown/x", 10)
        messages = [await anext(subscription) for _ in range(10)]
        (facts,) = await moor.later("show", name, "--json")
        (member,) = facts["members"]  # type: ignore[misc]
        assert member["streams"] == 2  # type: ignore[has-type]
        assert facts["lag"] == 10
        streams = facts["streams"]
        assert isinstance(streams, list)
        assert {one["member"] for one in streams} == {member["member"]}  # type: ignore[has-type]
        assert sum(one["pending"] for one in streams) == 10
        for message in messages:
            await message.ack()
        while (await moor.later("show", name, "--json"))[0]["lag"]:
            pass
    lines = moor.lines("show", name)
    assert dict(line.split(maxsplit=1) for line in lines if line.count(" ") > 1)["lag"] == "0"
    assert any(line.split() == ["stream", *STREAM_COLUMNS] for line in lines)


STREAM_COLUMNS = ["offset", "end", "lag", "member", "status", "pending", "failing", "lost"]


async def test_watch_is_json_in_a_pipe(moor: Moor) -> None:
    name = "$shared/watched/watched/#"
    moor.lines("create", name)
    async with connect(moor.node.address) as client:
        await published(client, "watched/x", 3)
    looks = moor.json("watch", name, "--count", "2", "--interval", "0.05")
    assert [look["lag"] for look in looks] == [3, 3]
    assert [look["done_per_s"] for look in looks] == [None, 0]


async def test_watch_is_a_table_on_a_terminal(moor: Moor) -> None:
    name = "$shared/drawn/drawn/#"
    async with connect(moor.node.address) as client:
        await client.subscribe(name)
        while not (await client.group(name).info()).members:
            await asyncio.sleep(0.01)
        shown = await asyncio.to_thread(on_a_terminal, moor, "watch", name, "--count", "2")
    assert "$shared/drawn/drawn/#  led by node-1: 0 behind" in shown
    assert re.search(r"node-1/\S+ +node-1/0 ", shown), shown


def on_a_terminal(moor: Moor, *arguments: str) -> str:
    """What a person sees."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(
        [*MOOR, "group", *arguments, f"--address={moor.node.address}"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**clean_environment(), "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 65_536):
            shown += data
    except OSError:  # the end of a terminal
        pass
    os.close(ours)
    assert process.wait(20) == 0, shown
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())


async def test_seek_goes_back_and_forth(moor: Moor) -> None:
    name = "$shared/sought/sought/#"
    moor.lines("create", name)
    async with connect(moor.node.address) as client:
        await published(client, "sought/x", 5)
        moor.lines("seek", name, "--to", "now")
        assert moor.json("show", name, "--json")[0]["lag"] == 0
        moor.lines("seek", name, "--to", "beginning")
        subscription = await client.subscribe(name)
        assert [(await anext(subscription)).body for _ in range(5)] == [
            b"0",
            b"1",
            b"2",
            b"3",
            b"4",
        ]
    assert "accepted: now" in moor.error(2, "seek", name, "--to", "soon")


async def test_the_limit_of_a_running_group_is_changed(moor: Moor) -> None:
    name, dead = "$shared/changed/changed/#", "$dead/changed/#"
    moor.lines("create", name, "--deliveries-max", "0")
    async with connect(moor.node.address) as client:
        buried = await client.subscribe(dead)
        subscription = await client.subscribe(name)
        await published(client, "changed/x", 1)
        for deliveries in range(1, 4):
            message = await anext(subscription)
            assert message.deliveries == deliveries
            if deliveries < 3:
                await message.reject()
        # It has failed twice, and a member has it in hand: that member is not to lose it.
        changed = await moor.later("change", name, "--deliveries-max", "3", "--json")
        assert changed == [{"group": name, "deliveries_max": 3}]
        assert (await client.group(name).info()).group.deliveries_max == 3
        await message.reject()
        assert (await anext(buried)).body == b"0"
    assert moor.lines("change", name, "--deliveries-max", "7") == []
    assert moor.json("show", name, "--json")[0]["deliveries_max"] == 7
    assert "there is no group" in moor.error(12, "change", "$shared/none/x", "--deliveries-max=1")
    assert "--deliveries-max" in moor.error(2, "change", name)


async def test_a_member_is_kicked(moor: Moor) -> None:
    name = "$shared/kicked/kicked/#"
    async with connect(moor.node.address) as client:
        subscription = await client.subscribe(name)
        while not (members := (await client.group(name).info()).members):
            await asyncio.sleep(0.01)
        await moor.later("kick", name, members[0].member)
        with pytest.raises(SubscriptionEnded, match="KICKED"):
            await anext(subscription)
    assert "is no member" in moor.error(12, "kick", name, "nobody")


async def test_delete_tells_the_members(moor: Moor) -> None:
    name = "$queue/ended/ended/#"
    async with connect(moor.node.address) as client:
        subscription = await client.subscribe(name)
        await moor.later("delete", name, "--yes")
        with pytest.raises(SubscriptionEnded, match="DELETED"):
            await anext(subscription)


def test_mistakes_are_one_line(moor: Moor) -> None:
    assert "in single quotes" in moor.error(2, "show", "orders")
    assert "a group's name has" in moor.error(12, "show", "$shared//orders")
    assert "1 to 512" in moor.error(2, "kick", "$shared/none/x", "x" * 513)
    assert "there is no group" in moor.error(12, "watch", "$shared/none/x")
    assert "there is no group" in moor.error(12, "seek", "$shared/none/x", "--to", "now")
    assert "there is no group" in moor.error(12, "delete", "$shared/none/x", "--yes")


def test_only_operators_change_groups(tmp_path: Path) -> None:
    with proving(tmp_path, "olga") as proven:
        olga = proven.flags
        moor = Moor(proven.node)
        moor.lines("create", "$shared/a/b")  # the anonymous client on the same machine may
        assert "the right l (list) is not granted at /groups" in moor.error(12, "list", *olga)
        limit = "--deliveries-max=1"
        for command in (
            ["create"],
            ["seek", "--to=now"],
            ["delete", "--yes"],
            ["kick"],
            ["change", limit],
        ):
            name, *flags = command
            who = ["x"] if name == "kick" else []
            assert "is not granted at /" in moor.error(12, name, "$shared/a/b", *who, *flags, *olga)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_ends_with_an_example(moor: Moor, command: str) -> None:
    moor.check_help(command)
