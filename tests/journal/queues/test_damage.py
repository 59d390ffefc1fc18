"""Damage to any one file at any byte, sampled; `tests.journal.queues.damage --exhaustive` does all of it."""

import pytest
from tests.journal.queues.damage import Damage, History, Outcome, Trial, run


@pytest.mark.slow
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 4))]
)
def test_damage_to_any_one_file_loses_nothing_that_can_be_read(block: int) -> None:
    outcomes = [run(seed, samples=60) for seed in range(block * 2, block * 2 + 2)]
    assert [failure for outcome in outcomes for failure in outcome.failures] == []
    assert sum(outcome.damages for outcome in outcomes) >= 2 * 60
    assert sum(outcome.unreadable for outcome in outcomes), "or nothing was damaged that mattered"


def test_the_histories_have_all_that_files_can_have() -> None:
    """Or the damage above would be done to little."""
    names, lines, two_files = set[str](), 0, 0
    for seed in range(12):
        files = History(seed).files
        names |= {path.rpartition("/")[2].partition(".")[0] for path in files}
        lines = max(lines, *(data.count(b"\n") for path, data in files.items() if "queue." in path))
        folders = [path.rpartition("/")[0] for path in files if "/messages." in path]
        two_files += len(folders) - len(set(folders))
    assert names >= {"index", "messages", "queue", "layout"}
    assert lines > 3
    assert two_files > 1


def test_the_trials_would_see_a_loss() -> None:
    """Whoever delivers nothing at all after damage to the index has lost what is whole."""
    history = next(one for one in map(History, range(50)) if any(_waiting(one)))
    trial = Trial(history, Damage("index", "flip", 20), outcome := Outcome())
    trial._compare("tested", {}, trial._check(trial._disk()))
    assert outcome.lost == sum(_waiting(history))
    assert outcome.failures


def _waiting(history: History) -> list[int]:
    return [len(model.messages) for model in history.expected.values()]
