"""The pages that start Spark, each several times, are followed word by word: docs/start.md, and how-tos."""

from pathlib import Path

import pytest
from tests.pages.following import ROOT, Reader, needs
from tests.spark.quick_java import quicken

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.timeout(600)]

SPARK_S = 240
"""Of a command that starts it, on a machine that others use."""

HOW_TO = ROOT / "docs" / "how-to"


@pytest.fixture(autouse=True)
def quick_java() -> None:
    quicken()


def test_the_first_ten_minutes(tmp_path: Path) -> None:
    if gone := needs("mosquitto_pub"):
        pytest.skip(f"no {gone} here: tools/setup system installs it")
    with Reader(tmp_path / "clone", patience_s=SPARK_S) as reader:
        reader.follow(ROOT / "docs" / "start.md")


def test_an_archive_with_its_proof(tmp_path: Path) -> None:
    with Reader(tmp_path / "clone", patience_s=SPARK_S) as reader:
        reader.follow(HOW_TO / "spark-archive.md")


def test_mqtt_into_parquet(tmp_path: Path) -> None:
    if gone := needs("mosquitto_pub"):
        pytest.skip(f"no {gone} here: tools/setup system installs it")
    with Reader(tmp_path / "clone", patience_s=SPARK_S) as reader:
        reader.follow(HOW_TO / "mqtt-into-parquet.md")
