"""A histogram of seconds on /metrics: what is counted is told in its buckets."""

import pytest
from prometheus_client import generate_latest

from moorline.metrics import BUCKETS_S, Metrics


def test_seconds_are_counted_in_the_bucket_that_they_end_in() -> None:
    metrics = Metrics()
    observe = metrics.latency("work_seconds", "How long work takes.")
    for seconds in (0.0001, 0.00011, 0.3, 7.0):
        observe(seconds)
    told = generate_latest(metrics.registry).decode()
    found = {
        line.rpartition(" ")[0].removeprefix("moorline_work_seconds"): float(line.split()[-1])
        for line in told.splitlines()
        if line.startswith("moorline_work_seconds")
    }
    assert len(found) == len(BUCKETS_S) + 3
    assert found['_bucket{le="0.0001"}'] == 1, "the end of a bucket is a part of it"
    assert found['_bucket{le="0.00025"}'] == 2
    assert found['_bucket{le="0.1"}'] == 2
    assert found['_bucket{le="0.5"}'] == found['_bucket{le="2.0"}'] == 3
    assert found['_bucket{le="+Inf"}'] == found["_count"] == 4
    assert found["_sum"] == pytest.approx(7.30021)
    assert "# TYPE moorline_work_seconds histogram" in told
