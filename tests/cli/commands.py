"""The commands of `moor` about one noun on one real node, as a person and as a script run them."""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest
import trustme
from tests.process.nodes import NodeProcess, clean_environment
from tests.process.warm import run_warm


class Commands:
    """`moor NOUN …`."""

    noun: ClassVar[str]

    def __init__(self, node: NodeProcess) -> None:
        self.node = node

    def __call__(
        self, command: str, *arguments: str, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        given = [self.noun, command, f"--address={self.node.address}", *arguments]
        return run_warm(given, clean_environment(), stdin=stdin, timeout_s=60)

    def lines(self, *arguments: str, stdin: bytes = b"") -> list[str]:
        done = self(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().splitlines()

    def json(self, *arguments: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.lines(*arguments)]

    def error(self, code: int, *arguments: str, stdin: bytes = b"") -> str:
        """The one line of a command that fails with that code."""
        done = self(*arguments, stdin=stdin)
        (line,) = done.stderr.decode().splitlines()
        assert done.returncode == code, line
        assert line.startswith("moor: ")
        return line

    def check_help(self, command: str) -> None:
        """It ends with an example of that command."""
        lines = [line for line in self.lines(command, "--help") if line.strip()]
        assert f"moor {self.noun} {command}" in lines[-1]
        assert "Example: " in lines[-1]

    async def later(self, *arguments: str) -> list[dict[str, object]]:
        """While a member of this process lives on."""
        return await asyncio.to_thread(self.json, *arguments)


def running(factory: pytest.TempPathFactory, noun: str, *flags: str) -> Iterator[NodeProcess]:
    """A node for the tests of a module."""
    folder = factory.mktemp(f"{noun}-commands")
    with NodeProcess(folder / "data", "--roles=broker", *flags) as node:
        yield node


def guide(name: str) -> tuple[str, list[str]]:
    """A page of the documents, and the Python in it."""
    page = (Path(__file__).parents[2] / "docs" / name).read_text()
    return page, re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def check_example(node: NodeProcess, example: str) -> None:
    """It runs to its end on that node and complains of nothing."""
    done = subprocess.run(
        [sys.executable, "-c", example.replace("tcp://127.0.0.1:7411", node.address)],
        capture_output=True,
        timeout=60,
        env=clean_environment(),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


class Proven(NamedTuple):
    """A node with TLS, and the certificates of a client that it believes."""

    node: NodeProcess
    address: str
    ca: Path
    certificates: Path

    @property
    def flags(self) -> tuple[str, ...]:
        certificates = (f"--certificate={self.certificates}", f"--key={self.certificates}")
        return (f"--address={self.address}", f"--ca={self.ca}", *certificates)


@contextlib.contextmanager
def proving(folder: Path, name: str) -> Iterator[Proven]:
    """A node that also listens with TLS, and a client of that name, which is no operator."""
    authority = trustme.CA()
    ca, certificates = folder / "ca.pem", folder / "certificates.pem"
    authority.cert_pem.write_to_path(str(ca))
    issued = authority.issue_cert("127.0.0.1", common_name=name)
    issued.private_key_and_cert_chain_pem.write_to_path(str(certificates))
    with NodeProcess(
        folder / "data",
        "--roles=broker",
        "--listen=tls://127.0.0.1:0",
        f"--tls-certificate={certificates}",
        f"--tls-key={certificates}",
        f"--tls-client-ca={ca}",
    ) as node:
        found = re.search(r"tls://\S+", node.ready_line)
        assert found is not None
        yield Proven(node, found[0], ca, certificates)
