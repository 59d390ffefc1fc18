"""The pages that start Spark, each several times, are followed word by word: docs/start.md, and how-tos."""

import re
from pathlib import Path

import pytest
from tests.pages.following import POSTGRES, ROOT, Reader, needs
from tests.pages.reading import Command, File
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


def test_the_jobs_of_the_guide(tmp_path: Path) -> None:
    """On a node that has what they are about: messages, a table, and the service of docs/start.md."""
    page = ROOT / "docs" / "spark.md"
    (ids,) = re.findall(r"^```python\n(billing = .*?)^```", page.read_text(), re.M | re.S)
    begin = "import moorline.spark\n\nspark = moorline.spark.session()\n"
    kept = [
        block
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
        if "import archived" in block or "import materialized" in block
    ]
    at = ids.replace(".load()", '.option("address", "tcp://127.0.0.1:7411").load()')
    with Reader(tmp_path / "clone", patience_s=SPARK_S) as reader:
        for typed in ("export PATH=$PWD/.venv/bin:$PATH", "python examples/certificates.py"):
            reader.do(Command(typed, []))
        serve = (
            "moor serve --set streams.generation_s=1 --listen tcp://127.0.0.1:7411 "
            "--listen tls://127.0.0.1:7413 "
            "--tls-certificate server.pem --tls-key server.pem --tls-client-ca ca.pem"
        )
        reader.do(Command(f".venv/bin/{serve}", [], "ready:"))
        reader.do(File("ids.py", begin + at))
        table = "create table experiments (id bigint primary key, workspace_id int, state text)"
        for typed in (
            "seq 1 300 | moor topic publish orders/eu - --lines",
            "python examples/services.py",
            f'PATH="$PATH:$(echo {POSTGRES})" '
            f"psql -q postgresql://postgres@/postgres?host=$PWD/moorline-data/run -c '{table}'",
            "mkdir copy-of-a-data-folder",
            "cp -r moorline-data/streams moorline-data/node.* copy-of-a-data-folder",
            "python ids.py",
        ):
            reader.do(Command(typed, []))
        reader.follow(page, is_guide=True)
        reader.do(File("kept.py", begin + "\n".join(kept)))
        reader.do(Command("python kept.py", []))
        reader.do(
            Command("moor topic list again/orders/eu", ["messages topic", "600 again/orders/eu"])
        )


def test_mqtt_into_parquet(tmp_path: Path) -> None:
    if gone := needs("mosquitto_pub"):
        pytest.skip(f"no {gone} here: tools/setup system installs it")
    with Reader(tmp_path / "clone", patience_s=SPARK_S) as reader:
        reader.follow(HOW_TO / "mqtt-into-parquet.md")
