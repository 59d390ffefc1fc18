"""How workers share the tests: those on Spark, which have one session, are one piece; else a file is one."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A test is about what happens, and not about when: this machine may have other work.
settings.register_profile(
    "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("patient")

SPARK = Path(__file__).parent / "spark"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        group = "spark" if SPARK in item.path.parents else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
