"""A real nginx in front of nodes, as an ordinary user starts one: on a free port, in a folder of its own."""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

PATIENCE_S = 30
COMMAND = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")

MAIN = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/errors.log info;
events {{ worker_connections 256; }}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}
    server {{
        listen 127.0.0.1:{port}{ssl};
        {certificate}
        location / {{ return 404; }}
        {locations}
    }}
}}
"""

LOCATION = """
        location {path} {{
            proxy_pass {upstream};
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host $http_host;
            {more}
        }}
"""


def why_not() -> str | None:
    """Why there can be no proxy here."""
    return None if COMMAND else "nginx is not installed: the tests behind a proxy are left out"


def location(path: str, upstream: str, *more: str) -> str:
    return LOCATION.format(path=path, upstream=upstream, more="\n            ".join(more))


class Nginx:
    def __init__(self, folder: Path, *locations: str, pem: Path | None = None) -> None:
        assert COMMAND is not None
        folder.mkdir()
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.url = f"{'https' if pem is not None else 'http'}://127.0.0.1:{self.port}"
        certificate = (
            f"ssl_certificate {pem}; ssl_certificate_key {pem};" if pem is not None else ""
        )
        (folder / "nginx.conf").write_text(
            MAIN.format(
                folder=folder,
                port=self.port,
                ssl=" ssl" if pem is not None else "",
                certificate=certificate,
                locations="".join(locations),
            )
        )
        self._log = (folder / "start.log").open("wb")
        self.process = subprocess.Popen(
            [
                COMMAND,
                "-p",
                str(folder),
                "-c",
                str(folder / "nginx.conf"),
                "-e",
                str(folder / "first.log"),
            ],
            stdout=self._log,
            stderr=self._log,
        )
        end = time.monotonic() + PATIENCE_S
        while True:
            assert self.process.poll() is None, (folder / "start.log").read_text()
            assert time.monotonic() < end, "nginx does not open its port"
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                time.sleep(0.02)

    @property
    def said(self) -> str:
        return (self.folder / "access.log").read_text()

    def __enter__(self) -> "Nginx":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_S)
        self._log.close()
