"""How long a job without an end waits for its node: by a clock that is moved by hand."""

from moorline.limits import PIPELINE_PATIENCE_MS, PIPELINE_STEADY_MS
from moorline.spark.jobs.patience import Patience


def test_patience_is_counted_from_the_first_loss() -> None:
    patience = Patience(0)
    assert patience.lost(5_000) == PIPELINE_PATIENCE_MS
    # It answered, and the query lost it again at once: that is the same loss.
    patience.began(6_000)
    assert patience.lost(8_000) == PIPELINE_PATIENCE_MS - 3_000
    patience.began(4_000 + PIPELINE_PATIENCE_MS)
    assert patience.lost(5_000 + PIPELINE_PATIENCE_MS) == 0


def test_a_query_that_ran_steadily_since_makes_it_new() -> None:
    patience = Patience(0)
    patience.lost(1_000)
    patience.began(2_000)
    assert patience.lost(2_000 + PIPELINE_STEADY_MS) == PIPELINE_PATIENCE_MS
