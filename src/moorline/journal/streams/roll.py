"""Room: journal/streams. When a generation ends and the next one begins: by its age; its size is looked at
by every commit (`ShardLog.take`).

A shard rolls: its newest generation grows no more, is sealed, and may be dropped by retention as a whole.
"""

from moorline.journal.streams.generation import Generation


def is_too_old(newest: Generation, now_us: int, generation_s: int) -> bool:
    """One without messages never is: there would be nothing to seal."""
    has_messages = newest.end > newest.first
    return has_messages and newest.first_time_us <= now_us - generation_s * 1_000_000
