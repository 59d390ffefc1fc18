"""The examples and the README against one real node: they run as they stand, and print what is said."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.process.nodes import NodeProcess, clean_environment

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(
    path for path in (ROOT / "examples").glob("*.py") if not path.stem.startswith("spark_")
)
"""Those on Spark need a session of half a minute each: what they show is tested in tests/spark."""
README = (ROOT / "README.md").read_text(encoding="utf-8")

NO_LINT = "# ruff: noqa: T201\n"
"""An example prints. The README leaves this line out."""

PRINTED = {
    "hello": r"node-1 runs broker, console\nb'ahoy'\n",
    "queues": r"b'one'\nb'two'\nb'three'\n",
    "full_queue": (
        r"refused after 128: the queue is full; .*\n"
        r"senders were turned away here\n"
        r"the queue takes messages again\n"
    ),
    "many_queues": r"999 stored, 1 refused: OFF\n999 read and acknowledged, 0 failed\n",
    "papers": r"made ca\.pem, server\.pem and billing\.pem\n",
    "services": r"b'an invoice'\n",
    "drift": r"10 added, 0 removed, \d+ bytes\nequal: 1000 queues, 48 bytes\n",
    "topics": r"weather/bergen/wind b'12 knots' b'25 knots'\nand again b'12 knots'\n",
    "shared_group": r"1000 orders: \d+ to one member, \d+ to the other\n",
    "durable_session": r"while we were away: prices/tea is 2\.50\n",
    "queue_mode": r"99 pictures are done while one takes its time\n",
    "dead_letters": (
        r"delivery 1 failed\ndelivery 2 failed\ndelivery 3 failed\n"
        r"parsed: \['a good one'\]; in \$dead/parser/mail/in: failed too often\n"
    ),
}

Run = Callable[[str], str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs a program in the folder of the certificates, at the ports of the one node."""
    folder = tmp_path_factory.mktemp("examples")
    addresses: dict[str, str] = {}

    def run_program(code: str) -> str:
        for written, real in addresses.items():
            code = code.replace(written, real)
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=folder,
            env=clean_environment(),
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    run_program(example("papers"))
    with NodeProcess(
        folder / "data",
        "--listen=tls://127.0.0.1:0",
        f"--tls-certificate={folder / 'server.pem'}",
        f"--tls-key={folder / 'server.pem'}",
        f"--tls-client-ca={folder / 'ca.pem'}",
    ) as node:
        tls = re.search(r"tls://\S+", node.ready_line)
        assert tls is not None
        addresses["tcp://127.0.0.1:7411"] = node.address
        addresses["tls://127.0.0.1:7413"] = tls[0]
        yield run_program


def example(name: str) -> str:
    return (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")


def test_every_example_is_here() -> None:
    assert sorted(PRINTED) == [path.stem for path in EXAMPLES]


@pytest.mark.parametrize("name", [name for name in PRINTED if name != "papers"])
def test_an_example_prints_what_it_should(run: Run, name: str) -> None:
    assert re.fullmatch(PRINTED[name], run(example(name)))


def test_the_papers_are_made_anywhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "papers.py")],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        check=True,
    )
    assert re.fullmatch(PRINTED["papers"], done.stdout)
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"ca.pem", "server.pem", "billing.pem"}


def test_the_python_of_the_readme_is_that_of_the_examples() -> None:
    shown = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
    written = [path.read_text(encoding="utf-8").removeprefix(NO_LINT) for path in EXAMPLES]
    assert shown
    for block in shown:
        assert block in written


@pytest.mark.parametrize(
    "name", ["queues", "topics", "shared_group", "papers", "services", "drift"]
)
def test_the_readme_shows_what_an_example_prints(name: str) -> None:
    command = re.escape(f"$ .venv/bin/python examples/{name}.py\n")
    assert re.search(command + PRINTED[name], README)
