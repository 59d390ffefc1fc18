"""The streams by chance: crashes at any step of anything, over many seeds."""

import pytest
from tests.journal.streams.stream_simulation import StreamSimulation

from moorline.journal.streams import retained, segment_index, shard, stream_log

pytestmark = pytest.mark.slow

SEEDS, STEPS = 240, 120


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds so small that a short run meets all of them."""
    monkeypatch.setattr(segment_index, "STREAM_INDEX_EVERY", 4)
    monkeypatch.setattr(shard, "STREAM_SNAPSHOT_BYTES", 700)
    monkeypatch.setattr(retained, "RETAINED_LOG_BYTES_MIN", 600)
    monkeypatch.setattr(stream_log, "STREAM_LOG_BYTES", 3_000)


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 4))]
)
def test_power_cuts_lose_nothing_that_was_committed(block: int) -> None:
    crashes = dropped = duplicates = logged = 0
    for seed in range(block * SEEDS // 4, (block + 1) * SEEDS // 4):
        simulation = StreamSimulation(seed)
        simulation.run(STEPS)
        crashes += simulation.crashes
        dropped += simulation.dropped
        duplicates += simulation.duplicates
        logged += simulation.logged
    assert crashes > 0
    assert logged > 0
    assert dropped > 0
    assert duplicates > 0


@pytest.mark.slow
def test_process_crashes_lose_nothing_without_a_sync() -> None:
    crashes = 0
    for seed in range(100):
        simulation = StreamSimulation(1_000_000 + seed, sync=False, power=False)
        simulation.run(STEPS)
        crashes += simulation.crashes
    assert crashes > 0


@pytest.mark.slow
def test_power_cuts_without_a_sync_take_from_the_end_only() -> None:
    crashes = 0
    for seed in range(100):
        simulation = StreamSimulation(2_000_000 + seed, sync=False)
        simulation.run(STEPS)
        crashes += simulation.crashes
    assert crashes > 0


@pytest.mark.parametrize("seed", range(3_000_000, 3_000_010))
def test_crashes_while_all_frames_are_checked_at_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorline.core.frames.byte_columns.COLUMN_ONE_BY_ONE_MAX", 0)
    StreamSimulation(seed).run(STEPS)
