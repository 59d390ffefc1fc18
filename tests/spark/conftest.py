"""One Spark for all tests of this folder: a start takes seconds of every core."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.process.nodes import NodeProcess
from tests.spark.publishing import Message, publish
from tests.spark.quick_java import quicken

import moorline.spark
from moorline.spark.session import SHORT_JOB

SOURCES = Path(__file__).parents[2] / "src"
SMALL_GENERATIONS = ("--set=streams.shards=2", "--set=streams.generation_bytes_max=65536")


@pytest.fixture(autouse=True)
def quick_java(request: pytest.FixtureRequest) -> None:
    """For what a test starts itself, from the moment on at which the archive of classes is there."""
    if request.node.get_closest_marker("slow") is not None:
        quicken()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Workers find the code under test as we do, and the tests' own modules by the folder above.
    with contextlib.ExitStack() as stack:
        stack.enter_context(_variable("PYTHONPATH", str(SOURCES)))
        quicken()
        made = moorline.spark.session(master="local[2,4]", app_name="tests", config=SHORT_JOB)
        stack.callback(made.stop)
        yield made


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node") / "data", *SMALL_GENERATIONS) as one:
        yield one


@pytest.fixture(scope="session")
def published(node: NodeProcess) -> list[Message]:
    """Messages of all shapes, in several generations of two shards."""
    return asyncio.run(publish(node.address))


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value if before is None else f"{value}{os.pathsep}{before}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
