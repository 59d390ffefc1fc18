"""What Spark's processes import of ours: a source is made in many, and most only ask for its schema."""

import subprocess
import sys

import pytest
from tests.process.nodes import clean_environment


@pytest.mark.parametrize("module", ["moorline.spark.session", "moorline.spark.source"])
def test_a_session_and_a_source_are_made_without_links_and_numbers(module: str) -> None:
    unwanted = ("moorline.net", "moorline.wire", "moorline.client", "moorline.journal", "numpy")
    assert loaded_by(module, *unwanted) == []


@pytest.mark.slow
@pytest.mark.parametrize("module", ["moorline.client.moor", "moorline.spark.topic_reader"])
def test_who_opens_links_does_not_load_the_settings_of_a_node(module: str) -> None:
    unwanted = ("moorline.config.settings", "moorline.config.access", "moorline.config.records")
    assert loaded_by(module, *unwanted) == []


def loaded_by(module: str, *unwanted: str) -> list[str]:
    program = (
        f"import sys, {module}\n"
        f"print(*[name for name in {unwanted!r} if name in sys.modules], sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
        check=True,
    )
    return done.stdout.split()
