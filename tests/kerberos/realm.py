"""A realm with a real KDC of MIT, on a port of its own, in a folder of the test's.

    with Realm(folder) as realm:
        realm.add("alice@MOOR.TEST", password="…")
        realm.keytab("moorline/127.0.0.1")

The environment is of a whole process: whoever needs `realm.environment` is started with it.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

NAME = "MOOR.TEST"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
START_S = 20


def missing() -> str:
    """Why there can be no realm here; empty if there can."""
    gone = [name for name in PROGRAMS if shutil.which(name, path=SEARCHED) is None]
    if gone:
        return f"no {', '.join(gone)} here: tools/setup system installs them, where it may"
    try:
        import gssapi  # noqa: F401
    except ImportError as error:
        return f"no gssapi here ({error}): tools/setup system installs python3-gssapi"
    return ""


class Realm:
    def __init__(self, folder: Path, *, clock_skew_s: int = 300, life: str = "10h") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        (folder / "krb5.conf").write_text(
            f"""[libdefaults]
default_realm = {NAME}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
clockskew = {clock_skew_s}
udp_preference_limit = 1
default_ccache_name = FILE:{folder}/ccache
[realms]
{NAME} = {{
  kdc = 127.0.0.1:{self.port}
}}
[logging]
kdc = FILE:{folder}/kdc.log
"""
        )
        (folder / "kdc.conf").write_text(
            f"""[realms]
{NAME} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
  kdc_listen = 127.0.0.1:{self.port}
  kdc_tcp_listen = 127.0.0.1:{self.port}
  max_life = {life}
}}
[logging]
kdc = FILE:{folder}/kdc.log
"""
        )
        (folder / "replays").mkdir(exist_ok=True)
        self._kdc: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {
            "KRB5_CONFIG": str(self.folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.folder}/ccache",
            "KRB5RCACHEDIR": str(self.folder / "replays"),
        }

    def __enter__(self) -> Self:
        self.run(["kdb5_util", "create", "-s", "-P", "the master key"])
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # --- the KDC ----------------------------------------------------------------------------------

    def start(self) -> None:
        assert self._kdc is None, "it runs"
        # Whoever is killed leaves no KDC behind, which would answer for the next realm at its port.
        self._kdc = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", "krb5kdc", "-n", "-P", str(self.folder / "kdc.pid")],
            env=self._environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ends = time.monotonic() + START_S
        while time.monotonic() < ends:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            assert self._kdc.poll() is None, (self.folder / "kdc.log").read_text()
            time.sleep(0.01)
        raise AssertionError("the KDC did not start")

    def stop(self) -> None:
        if self._kdc is not None:
            self._kdc.send_signal(signal.SIGCONT)
            self._kdc.kill()
            self._kdc.wait()
            self._kdc = None

    def hang(self) -> None:
        """It listens, and answers nobody, until `stop`."""
        assert self._kdc is not None
        self._kdc.send_signal(signal.SIGSTOP)

    # --- principals -------------------------------------------------------------------------------

    def add(self, principal: str, *options: str, password: str = "") -> None:
        secret = ["-pw", password] if password else ["-randkey"]
        self._administer("addprinc", *secret, *options, principal)

    def keytab(self, principal: str, *options: str) -> Path:
        """A new principal, and a keytab with its keys alone; or the one that was made before."""
        name = principal.replace("/", "_").replace("@", "_")
        path = self.folder / f"{name}.keytab"
        if path.exists():
            return path
        self.add(principal, *options)
        self._administer("ktadd", "-k", str(path), "-norandkey", principal)
        return path

    def add_to(self, keytab: Path, principal: str) -> None:
        """Its keys too, beside those of others."""
        self.keytab(principal)
        self._administer("ktadd", "-k", str(keytab), "-norandkey", principal)

    def renew(self, principal: str) -> None:
        """Another key: keytabs that are out are of no use any more."""
        self._administer("cpw", "-randkey", principal)

    def log_in(self, principal: str, keytab: Path, life: str = "1h", cache: str = "") -> Path:
        path = self.folder / (cache or f"{principal.replace('/', '_')}.ccache")
        self.run(["kinit", "-k", "-t", str(keytab), "-l", life, "-c", f"FILE:{path}", principal])
        return path

    # --- inside -----------------------------------------------------------------------------------

    def _administer(self, *words: str) -> None:
        self.run(["kadmin.local", "-r", NAME, *words])

    def run(self, command: Sequence[str], more: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            command,
            executable=shutil.which(command[0], path=SEARCHED),
            env=self._environment() | dict(more or {}),
            capture_output=True,
            text=True,
            timeout=60,
        )
        said = done.stdout + done.stderr
        # kadmin.local ends with 0 whatever it was told.
        assert done.returncode == 0, said
        assert "already exists" not in said, said
        assert "rror" not in said, said
        return done.stdout

    def _environment(self) -> dict[str, str]:
        return dict(os.environ) | self.environment | {"PATH": SEARCHED}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
