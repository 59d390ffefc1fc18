"""The examples and `docs/start.md` against one real node: they run as they stand, and print what is said."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pytest
from tests.process.nodes import NodeProcess, clean_environment

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
WALK = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")

NO_LINT = "# ruff: noqa: T201\n"
"""An example prints. The walk leaves this line out."""

PRINTED = {
    "hello": r"node-1 runs resolver, broker, records, console\nb'ahoy'\n",
    "queues": r"b'one'\nb'two'\nb'three'\n",
    "full_queue": (
        r"refused after 128: the queue is full; .*\n"
        r"senders were turned away here\n"
        r"the queue takes messages again\n"
    ),
    "many_queues": r"999 stored, 1 refused: OFF\n999 read and acknowledged, 0 failed\n",
    "certificates": r"made ca\.pem, server\.pem and billing\.pem\n",
    "services": r"b'an invoice'\n",
    "drift": r"10 added, 0 removed, \d+ bytes\nequal: 1000 queues, 48 bytes\n",
    "topics": r"weather/bergen/wind b'12 knots' b'25 knots'\nand again b'12 knots'\n",
    "scripts": r"rain/bergen 1 mm\nrain/bergen 2 mm\nrain/bergen 3 mm\n",
    "stays": r"stored twice: 0\ntides/bergen b'high'\n\['over'\]\n",
    "values": r"12 knots\nalive 12\nupdate 25\n",
    "shared_group": r"1000 orders: \d+ to one member, \d+ to the other\n",
    "durable_session": r"while we were away: prices/tea is 2\.50\n",
    "queue_mode": r"99 pictures are done while one takes its time\n",
    "dead_letters": (
        r"delivery 1 failed\ndelivery 2 failed\ndelivery 3 failed\n"
        r"parsed: \['a good one'\]; in \$dead/parser/mail/in: failed too often\n"
    ),
}

PRINTED_ON_SPARK = {
    "spark_read": r"sales/bergen 80\nsales/oslo 120\nsales/tromso 15\n",
    "spark_stream": (r"first run: 1000 messages\nsecond run: 50 messages\nin the table: 1050\n"),
    "spark_group": r"1000 parcels: [1-9]\d* to the consumer, [1-9]\d* to the query\n",
    "spark_queues": r"1 in a queue\n2 in a queue\n3 in a queue\n6 in all, and still there: 6\n",
    "spark_associations": (
        r"the service: 1000 queues, hash (\w{32})\nin Spark:    1000 queues, hash \1\n"
    ),
    "spark_folder": r"[1-9]\d* messages in [1-9]\d* topics\n",
    "spark_write": r"after the first write: 1000 messages\nafter the second write: 1000 messages\n",
    "spark_write_queues": r"(100 letters, from b'letter 0' to b'letter 99'\n){3}",
    "spark_exactly_once": (
        r"first run: 500 rows written, 500 messages in the topic\n"
        r"second run: 500 rows written, 500 messages in the topic\n"
    ),
    "spark_archive": (
        r"1000 messages archived\n0 messages archived\n1000 rows in the table\n"
        r"[1-9]\d* sealed streams compared, 0 differ\n"
    ),
}
"""They are run by tests/spark/test_spark_examples.py, which has a session for all of them."""

PRINTED_OF_RECORDS = {
    "records": r"1 NEW\n2 NEW\nrecord 1 DONE\n",
    "spark_table": r"3 rows, proven: True\nDONE 1\nNEW 2\n",
}
"""They need a table: tests/records/test_watch_command.py and tests/spark/test_materialize.py make one."""

DECLARED_ON_SPARK = ("spark_declarative", "spark_flows")
"""They only declare something. Commands run it, and the same test does."""


class Examples:
    """A node with TLS, a folder with its certificates, and programs that are told its addresses."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self._addresses: dict[str, str] = {}
        self.run(example("certificates"))
        self._node = NodeProcess(
            folder / "moorline-data",
            "--listen=tls://127.0.0.1:0",
            f"--tls-certificate={folder / 'server.pem'}",
            f"--tls-key={folder / 'server.pem'}",
            f"--tls-client-ca={folder / 'ca.pem'}",
            *flags,
        )
        tls = re.search(r"tls://\S+", self._node.ready_line)
        assert tls is not None
        self.address = self._node.address
        self._addresses["tcp://127.0.0.1:7411"] = self.address
        self._addresses["moor://127.0.0.1:7411"] = self.address.replace("tcp://", "moor://")
        self._addresses["tls://127.0.0.1:7413"] = tls[0]

    def __enter__(self) -> "Examples":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._node.__exit__(kind, error, trace)

    def addressed(self, code: str) -> str:
        """The program, at the ports of this node."""
        for written, real in self._addresses.items():
            code = code.replace(written, real)
        return code

    def run(self, code: str) -> str:
        """What a program prints in the folder of the certificates."""
        done = subprocess.run(
            [sys.executable, "-c", self.addressed(code)],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.folder,
            env=clean_environment(),
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Examples]:
    with Examples(tmp_path_factory.mktemp("examples")) as made:
        yield made


def example(name: str) -> str:
    return (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")


def test_every_example_is_here() -> None:
    known = [*PRINTED, *PRINTED_OF_RECORDS, *PRINTED_ON_SPARK, *DECLARED_ON_SPARK]
    assert sorted(known) == [path.stem for path in EXAMPLES]


@pytest.mark.parametrize("name", [name for name in PRINTED if name != "certificates"])
def test_an_example_prints_what_it_should(examples: Examples, name: str) -> None:
    assert re.fullmatch(PRINTED[name], examples.run(example(name)))


def test_the_certificates_are_made_anywhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "certificates.py")],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        check=True,
    )
    assert re.fullmatch(PRINTED["certificates"], done.stdout)
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"ca.pem", "server.pem", "billing.pem"}


def test_the_python_of_the_walk_is_that_of_the_examples() -> None:
    shown = re.findall(r"^```python\n(.*?)^```", WALK, re.M | re.S)
    written = [path.read_text(encoding="utf-8").removeprefix(NO_LINT) for path in EXAMPLES]
    assert shown
    for block in shown:
        assert block in written


@pytest.mark.parametrize(
    "name",
    ["queues", "topics", "shared_group", "certificates", "services", "drift", "spark_read"],
)
def test_the_walk_shows_what_an_example_prints(name: str) -> None:
    command = re.escape(f"$ .venv/bin/python examples/{name}.py")
    printed = (PRINTED | PRINTED_ON_SPARK)[name].replace(r"\d+", r"(?:\d+|…)")
    assert re.search(rf"{command}(?: 2>/dev/null)?\n{printed}", WALK)
