"""A client that is cancelled at every moment, and what it then proves; run as a program.

    python -X dev -m tests.client.cancelled_client LOOP SEED COUNT PAPERS

It prints what it found wrong, a line for each, and ends with 1 if there is one.
"""

import asyncio
import contextlib
import gc
import logging
import sys
import threading
import traceback
import warnings
from collections import Counter

import msgspec
import uvloop
from tests.client.public_calls import (
    ARGUMENTS,
    READ,
    TARGETS,
    ClientCertificate,
    World,
    make,
    missing,
    note,
    public_calls,
)
from tests.waiting import until

from moorline.client.associations import Associations
from moorline.errors import MoorlineError, WrongLoop

WALKERS = 4
WITHIN_S = 100
"""Never reached where all is well, however busy the machine is."""

wrong: list[str] = []
cancelled: Counter[str] = Counter()


def check(condition: bool, text: str) -> None:
    if not condition:
        wrong.append(text)


# --- cancelling -----------------------------------------------------------------------------------


async def cancel_one(world: World, name: str) -> None:
    kind = name.partition(".")[0]
    target_of = TARGETS.get(name) or TARGETS[kind]
    async with asyncio.timeout(WITHIN_S), target_of(world) as target:
        arguments = await ARGUMENTS[name](world) if name in ARGUMENTS else ()
        task = asyncio.create_task(make(target, name, arguments))
        if world.chance.random() < 0.5:
            for _ in range(world.chance.randrange(12)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(world.chance.random() * 0.009)
        task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            cancelled[name] += 1
        elif task.exception() is None:
            note(world, name, arguments, task.result())
        elif not isinstance(task.exception(), MoorlineError | StopAsyncIteration):
            wrong.append(f"{name}: {task.exception()!r}")


async def walk(world: World, names: list[str], count: int) -> None:
    for place in range(count):
        if sum(cancelled.values()) >= count:
            return
        name = names[place % len(names)]
        try:
            await cancel_one(world, name)
        except MoorlineError as error:
            # What a cancelled call may have done is seen by the next: a group or a queue that is gone.
            check(error.code in EXPECTED, f"before {name}: {error!r}")
        except Exception as error:
            wrong.append(f"around {name}: {error!r}")


EXPECTED = {"NOT_FOUND", "SESSION_TAKEN", "SUBSCRIPTION_ENDED", "BLOCKED", "OFF"}


async def from_another_loop(world: World, name: str) -> None:
    """The same call from the loop of another thread."""
    kind = name.partition(".")[0]
    async with (TARGETS.get(name) or TARGETS[kind])(world) as target:
        arguments = await ARGUMENTS[name](world) if name in ARGUMENTS else ()
        found: list[BaseException] = []

        async def call() -> None:
            # A machine without a free core is no mistake of ours.
            asyncio.get_running_loop().slow_callback_duration = WITHIN_S
            async with asyncio.timeout(WITHIN_S):
                await make(target, name, arguments)

        def elsewhere() -> None:
            try:
                with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
                    runner.run(call())
            except BaseException as error:
                found.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        check(len(found) == 1 and isinstance(found[0], WrongLoop), f"{name} elsewhere: {found}")


# --- proofs ---------------------------------------------------------------------------------------


async def prove_list(world: World) -> None:
    """List and digest are one; both sides agree; and queues of the list are delivered."""
    listed = Associations(world.certificates.listed)
    kept, real = listed.digest(), listed.recomputed()
    named = [one for one in world.own if one in listed]
    listed.close()
    check(kept == real and len(named) == real.count, f"digest {kept} of a list of {real}")
    async with world.secure.service(world.certificates.listed) as service:
        check(service.report.digest == real, f"{service.report} where the list is {real}")
        check(service.report.lost == [], f"lost: {len(service.report.lost)}")
        again = await service.agree()
        check(again.associated == again.dissociated == 0, f"not repaired: {again}")
    # On a connection of its own: what earlier readers took and did not acknowledge comes again.
    async with (
        world.certificates.connect_as_service() as secure,
        secure.service(world.certificates.listed, window=8) as service,
    ):
        wanted = set(world.chance.sample(named, min(100, len(named))))
        await world.moor.send_all([(one, b"proof") for one in wanted])
        async with asyncio.timeout(WITHIN_S), contextlib.aclosing(aiter(service)) as messages:  # type: ignore[type-var]
            while wanted:
                message = await anext(messages)
                await message.ack()
                if message.body == b"proof":
                    wanted.discard(message.queue)


async def prove_messages(world: World) -> None:
    """What was answered is there once; what is there was asked for."""
    found: dict[str, list[bytes]] = {"sent": [], "published": []}
    waiting = (await world.moor.queue(world.kept).info()).waiting
    async with asyncio.timeout(WITHIN_S), world.certificates.connect() as other:
        async with contextlib.aclosing(world.moor.queue(world.kept).read()) as messages:  # type: ignore[type-var]
            while len(found["sent"]) < waiting:
                message = await anext(messages)
                if message.is_quota_marker:
                    waiting -= 1
                else:
                    found["sent"].append(message.body)
                await message.ack()
        subscription = await other.subscribe("c/#", start="beginning")
        end = b"%s-end" % world.prefix
        await other.publish("c/orders", end)
        is_end_read = False
        async for one in subscription:
            await one.ack()
            if one.body == end:
                is_end_read = True
            elif one.body.startswith(world.prefix):
                found["published"].append(one.body)
            # Topics are on several shards: what was answered on others may come behind the end of this one.
            if is_end_read and world.answered["published"] <= set(found["published"]):
                break
    for kind, bodies in found.items():
        check(len(bodies) == len(set(bodies)), f"{kind}: twice")
        check(world.answered[kind] <= set(bodies), f"{kind}: answered ones are lost")
        invented = set(bodies) - world.attempted[kind]
        check(not invented, f"{kind}: nobody said {sorted(invented)[:5]}")


async def prove_groups(world: World) -> None:
    """No subscription that nobody reads is left: a new member reads the group to its end."""

    async def is_left() -> bool:
        try:
            return not (await world.moor.group(READ).info()).members
        except MoorlineError as error:
            return error.code == "NOT_FOUND"

    await until(is_left, "a group without members")
    check(not world.moor._subscriptions._known, f"known: {world.moor._subscriptions._known}")
    subscription = await world.moor.subscribe(READ, start="beginning")

    async def is_done() -> bool:
        while (one := await subscription.get(0.02)) is not None:
            await one.ack()
        return all(not cursor.lag for cursor in (await world.moor.group(READ).info()).cursors)

    await until(is_done, "a group that is read to its end")
    await subscription.close()


async def prove_connections(world: World) -> None:
    await world.secure.close()

    async def is_alone() -> bool:
        return (await world.moor.describe()).connections == 1

    await until(is_alone, "one connection at the node")
    check(not world.moor._caller._batches, f"calls in flight: {world.moor._caller._batches}")


async def play(certificates: ClientCertificate, seed: int, count: int) -> None:
    loop = asyncio.get_running_loop()
    loop.slow_callback_duration = WITHIN_S
    loop.set_exception_handler(lambda _, context: wrong.append(f"the loop: {context}"))
    async with certificates.connect() as moor, certificates.connect_as_service() as secure:
        world = World(certificates, moor, secure, seed)
        await world.fill()
        names = public_calls()
        # One connection acts for one service: its calls follow each other.
        of_service = [name for name in names if name.startswith(("Service", "Reconciler"))]
        others = [name for name in names if name not in of_service]
        parts = [of_service, *(others[place :: WALKERS - 1] for place in range(WALKERS - 1))]
        async with asyncio.TaskGroup() as walkers:
            for part in parts:
                walkers.create_task(walk(world, part, count))
        check(sum(cancelled.values()) >= count, f"{sum(cancelled.values())} of {count} cancelled")
        for name in names:
            if not name.startswith("Connecting"):
                await from_another_loop(world, name)
        for prove in (prove_list, prove_messages, prove_groups, prove_connections):
            await prove(world)
        check(len(asyncio.all_tasks()) == 1, f"tasks: {asyncio.all_tasks()}")
    never = [name for name in names if not cancelled[name]]
    check(len(never) < len(names) // 4, f"never cancelled: {never}")


class Complaints(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        wrong.append(f"log: {record.getMessage()}")


def main() -> None:
    name, seed, count, written = sys.argv[1:]
    certificates = msgspec.json.decode(
        written, type=ClientCertificate, dec_hook=lambda kind, text: kind(text)
    )
    warnings.simplefilter("always")
    warnings.showwarning = lambda message, *_: wrong.append(f"warning: {message!r}")
    sys.unraisablehook = lambda one: wrong.append(f"unraisable: {one.exc_value!r} {one.object!r}")
    threading.excepthook = lambda one: wrong.append(f"a thread: {one.exc_value!r}")
    logging.getLogger().addHandler(Complaints(logging.WARNING))
    check(not missing(), f"calls that nobody makes here: {missing()}")
    make_loop = uvloop.new_event_loop if name == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=make_loop, debug=True) as runner:
        try:
            runner.run(play(certificates, int(seed), int(count)))
        except Exception:
            wrong.append(traceback.format_exc())
    gc.collect()
    sys.stdout.write("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
