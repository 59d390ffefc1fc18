"""The tests' own issuer as a process, and a browser that does what it is told."""

import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.oidc.issuer import CLIENT, SECRET

ROOT = Path(__file__).parents[2]


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Nowhere: whoever asks looks at where it is sent."""
        return


class IssuerProcess:
    def __init__(self, *flags: str, ca: Path | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.oidc.issuer", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url, f"the issuer ended with {self.process.wait(10)}"
        context = ssl.create_default_context(cafile=str(ca)) if ca is not None else None
        handlers: list[Any] = [urllib.request.ProxyHandler({}), _Stay]
        if context is not None:
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def control(self, **wish: Any) -> list[str]:
        """What it is to do from now on; the paths that it was asked for since the last time."""
        request = urllib.request.Request(f"{self.url}/control", json.dumps(wish).encode())
        with self._opener.open(request, timeout=30) as answer:
            asked: list[str] = json.load(answer)["asked"]
        return asked

    def reset(self) -> None:
        """But for its keys: they stay until they are rotated."""
        self.control(
            user={"sub": "anna-7", "groups": ["moor-readers", "other"]},
            faults={},
            life_s=300,
        )

    def visit(self, go: str) -> tuple[str, dict[str, str]]:
        """Goes where a node sends its browser; where that is sent back to, and with what."""
        with pytest.raises(urllib.error.HTTPError) as answer:
            self._opener.open(go, timeout=30).close()
        back = urlsplit(answer.value.headers["location"])
        query = {name: values[0] for name, values in parse_qs(back.query).items()}
        return f"{back.scheme}://{back.netloc}{back.path}", query

    def flags(self, folder: Path, *more: str) -> list[str]:
        """Those of a node that takes its word."""
        secret = folder / "client-secret"
        secret.write_text(SECRET + "\n")
        secret.chmod(0o600)
        return [
            f"--set=oidc.issuer={self.url}",
            f"--set=oidc.client_id={CLIENT}",
            f"--set=oidc.client_secret_file={secret}",
            "--set=oidc.principals=sub:*=oidc-{}",
            "--set=oidc.groups=groups:moor-*=@{}",
            *more,
        ]

    def __enter__(self) -> "IssuerProcess":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()
