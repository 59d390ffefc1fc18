"""The pages of docs/how-to that start Spark, each several times, are followed word by word."""

import os
from pathlib import Path

import pytest
from tests.pages.following import ROOT, Reader, needs
from tests.spark.quick_java import quicken

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.timeout(600)]

HOW_TO = ROOT / "docs" / "how-to"


@pytest.fixture(autouse=True)
def quick_java() -> None:
    quicken()


def test_an_archive_with_its_proof(tmp_path: Path) -> None:
    with Reader(tmp_path / "clone", dict(os.environ)) as reader:
        reader.follow(HOW_TO / "spark-archive.md")


def test_mqtt_into_parquet(tmp_path: Path) -> None:
    if gone := needs("mosquitto_pub"):
        pytest.skip(f"no {gone} here: tools/setup system installs it")
    with Reader(tmp_path / "clone", dict(os.environ)) as reader:
        reader.follow(HOW_TO / "mqtt-into-parquet.md")
