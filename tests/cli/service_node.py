"""A node with services for the tests of `moor service`: its clients, and a shell that runs the commands."""

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import trustme
from tests.process.nodes import NodeProcess, run_moor

from moorline.catalog.datafolder import SUPERUSER
from moorline.catalog.socket_folder import PORT
from moorline.cli.main import run
from moorline.client.associations import Associations
from moorline.client.connecting import Connecting, connect

EXIT_USAGE, EXIT_CONFIG, EXIT_FILE, EXIT_REFUSED, EXIT_DRIFT = 2, 3, 6, 12, 17


class Moorline:
    """A node with a TLS port, its authority, and a door behind its back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca))
        server = folder / "server.pem"
        issued = self.authority.issue_cert("127.0.0.1")
        issued.private_key_and_cert_chain_pem.write_to_path(str(server))
        self.node = NodeProcess(
            folder / "data",
            "--listen=tls://127.0.0.1:0",
            f"--tls-certificate={server}",
            f"--tls-key={server}",
            f"--tls-client-ca={self.ca}",
        )
        made = run_moor("grant", "add", "/", "olga", "slwpdag", f"--address={self.node.address}")
        assert made.returncode == 0, made.stderr
        found = re.search(r"tls://\S+", self.node.ready_line)
        assert found is not None
        self.tls = found[0]

    def certificates(self, name: str, file: str = "") -> Path:
        """A certificate with its key, of a service or an operator."""
        path = self.folder / f"{file or name}.pem"
        issued = self.authority.issue_cert("client@example.org", common_name=name)
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path

    def connect(self, certificates: Path) -> Connecting:
        return connect(self.tls, ca=self.ca, certificate=certificates, key=certificates)

    def flags(self, certificates: Path) -> list[str]:
        return [
            *("--address", self.tls, "--ca", str(self.ca)),
            *("--certificate", str(certificates), "--key", str(certificates)),
        ]

    @property
    def dsn(self) -> str:
        host = (self.node.data / "run").resolve()
        return f"postgresql://{SUPERUSER}@/{SUPERUSER}?host={host}&port={PORT}"

    def sql(self, statement: str, *values: object) -> list[Any]:
        async def fetch() -> list[Any]:
            connection = await asyncpg.connect(self.dsn)
            try:
                return list(await connection.fetch(statement, *values))
            finally:
                await connection.close()

        return asyncio.run(fetch())


class Client:
    """A service with its queues: a certificate, a list, and ids."""

    def __init__(self, moorline: Moorline, name: str, queues: int, file: str = "") -> None:
        self.moorline = moorline
        self.name = name
        self.certificates = moorline.certificates(name, file)
        self.list = moorline.folder / f"{file or name}.sqlite"
        self.queues: list[bytes] = asyncio.run(self._made(queues))

    async def _made(self, count: int) -> list[bytes]:
        async with self.connect() as moor:
            made = [queue.id for queue in await moor.create_queues(count)]
            async with moor.service(self.list) as service:
                assert await service.associate(made) == []
            return made

    def connect(self) -> Connecting:
        return self.moorline.connect(self.certificates)

    def lose(self, queues: Sequence[bytes]) -> None:
        """Associations vanish behind the node's back, and the kept digest is not told."""
        self.moorline.sql("delete from moorline.association where queue = any ($1)", list(queues))

    def drop(self, queues: Sequence[bytes]) -> None:
        """The node forgets associations as it should, and the client is not told."""
        self.moorline.sql("select * from moorline.dissociate($1)", list(queues))

    def forget(self, queues: Sequence[bytes]) -> None:
        """The client's list loses queues that the node keeps."""
        own = Associations(self.list)
        own.remove(queues)
        own.close()

    def listed(self) -> int:
        own = Associations(self.list)
        try:
            return len(own)
        finally:
            own.close()


class Shell:
    """Runs `moor` here, and keeps what it printed."""

    def __init__(self, moorline: Moorline, capsys: pytest.CaptureFixture[str]) -> None:
        self._moorline = moorline
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *words: object, certificates: Path | None = None) -> int:
        flags = ["--address", self._moorline.node.address]
        if certificates is not None:
            flags = self._moorline.flags(certificates)
        code = run(["service", *map(str, words), *flags])
        self.out, self.err = self._capsys.readouterr()
        assert self.err.count("\n") == (code != 0), "an error is one line"
        return code

    def json(self, *words: object, certificates: Path | None = None, code: int = 0) -> Any:
        """The one JSON object that the command prints."""
        assert self(*words, "--json", certificates=certificates) == code, self.err
        return json.loads(self.out)
