"""Room: groups. Members that hold streams and read them by themselves, as a query of Spark does.

Such a subscription gets feeds and no messages. Its member says how far it takes each of them, reads
those ranges from the nodes that have them, and acknowledges them when their batch is complete. A feed that
is stopped gives no more: so it is drained at the end of a batch.
"""

from collections.abc import Iterable

from moorline.core.feed import Feed
from moorline.core.ranges import Range
from moorline.core.topic import Mode, SharedName
from moorline.errors import BadTopic
from moorline.groups.cluster import Cluster
from moorline.groups.reading import Reading
from moorline.groups.subscription import Subscription
from moorline.limits import RANGES_PER_TAKE_MAX
from moorline.wire.holding import MessagesTaken, TakeMessages
from moorline.wire.topic import SubscribeTopic


def check_hold(
    call: SubscribeTopic,
    group: SharedName | None,
    known: Iterable[Subscription],
    *,
    is_durable: bool,
) -> None:
    """Refuses what nobody can hold, and a change of mind about it."""
    if group is not None and any(
        one.group == group and not one.is_leaving and one.window.is_held != call.hold
        for one in known
    ):
        raise BadTopic(f"{call.filter!r} is subscribed already, with another hold")
    if not call.hold:
        return
    if group is None or group.mode is not Mode.SHARED:
        raise BadTopic(
            f"{call.filter!r} cannot be held: only a $shared group has streams for its members; "
            "a $queue group hands out single messages"
        )
    if is_durable:
        raise BadTopic("a durable session cannot hold: its subscriptions come back with messages")
    if call.qos == 0:
        raise BadTopic("who holds acknowledges: use qos 1")


def take(reading: Reading | None, cluster: Cluster, call: TakeMessages) -> MessagesTaken:
    """What a member takes is out from now on; of a feed that is over or stopped that is nothing."""
    running = reading.running.get(call.feed) if reading is not None else None
    if reading is None or running is None:
        return MessagesTaken(call.call, [], 0)
    if not running.window.is_held:
        raise BadTopic(f"the messages of feed {call.feed} are delivered: subscribe with hold")
    feed = running.feed
    # A message that is not stored yet cannot be done: no member may go beyond the end.
    end = next((one.end for one in cluster.line(feed.stream.line) if one.stream == feed.stream), 0)
    ranges, upto = _taken(feed, min(call.upto, end), call.count)
    if ranges:
        reading.taken(running, sum(stop - first for first, stop in ranges))
    return MessagesTaken(call.call, ranges, upto)


def release(reading: Reading) -> None:
    """The connection is over. A batch says nothing of single messages: nobody is to blame for one."""
    for running in reading.running.values():
        if running.window.is_held:
            for first, upto in list(running.feed.out):
                running.feed.give_back(first, upto)


def _taken(feed: Feed, upto: int, count: int) -> tuple[list[Range], int]:
    """Marks what is open below `upto` as out; returns it, and below what nothing is open."""
    if feed.stopped:
        return [], 0
    taken: list[Range] = []
    wanted = [*feed.again.clip(0, upto), *feed.progress.open_ranges(feed.next, upto)]
    for first, end in wanted:
        if not count or len(taken) == RANGES_PER_TAKE_MAX:
            return taken, first
        stop = min(end, first + count)
        feed.looked_at(first, stop, [(first, stop)])
        taken.append((first, stop))
        count -= stop - first
        if stop < end:
            return taken, stop
    return taken, upto
