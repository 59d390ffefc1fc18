"""Room: net. PEM files by the settings that name them: what is wrong with one, and what to do."""

import re
import ssl
from collections.abc import Callable
from pathlib import Path

import msgspec

from moorline.errors import ConfigError
from moorline.limits import PEM_BYTES_MAX

CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
PRIVATE_KEY = b"PRIVATE KEY-----"
REVOCATION_LIST = b"-----BEGIN X509 CRL-----"
ENCRYPTED = b"ENCRYPTED"

_KINDS = {
    CERTIFICATE: "certificate",
    PRIVATE_KEY: "private key",
    REVOCATION_LIST: "revocation list",
}


class Pem(msgspec.Struct, frozen=True):
    """A file by the setting that names it, and by what must be in it."""

    setting: str
    path: str
    mark: bytes = CERTIFICATE

    def __str__(self) -> str:
        return f"{self.setting}: {self.path!r}"

    def problem(self) -> str:
        """What is wrong with the file, and what to do; empty if it looks as it should."""
        try:
            with Path(self.path).open("rb") as file:
                text = file.read(PEM_BYTES_MAX)
        except FileNotFoundError:
            return "there is no such file: give the path of a PEM file"
        except IsADirectoryError:
            return "this is a folder: give the path of a PEM file in it"
        except PermissionError:
            return "this user may not read it: change its owner or its mode"
        except (OSError, ValueError) as error:
            return f"it cannot be read: {error}"
        kind = _KINDS[self.mark]
        if b"-----BEGIN " not in text:
            return f"it is not a PEM file: convert it with openssl, or give the {kind}'s PEM file"
        if self.mark not in text:
            return f"there is no {kind} in it: give the file that holds the {kind}"
        if self.mark is PRIVATE_KEY and ENCRYPTED in text:
            return "the key needs a passphrase: give one without, that only this user may read"
        return ""

    def blocks(self) -> list[bytes]:
        """Each of what it should hold, as PEM text."""
        problem = self.problem()
        if problem:
            raise ConfigError(f"{self}: {problem}")
        end = self.mark.replace(b"BEGIN", b"END")
        found = re.findall(
            re.escape(self.mark) + b".*?" + re.escape(end), Path(self.path).read_bytes(), re.DOTALL
        )
        if not found:
            raise ConfigError(f"{self}: its {_KINDS[self.mark]} is cut short: write it anew")
        return found


def load_pem(load: Callable[[], object], *files: Pem) -> None:
    """Loads; the files are looked at only when that fails, since a pipe can be read but once."""
    try:
        load()
    except (OSError, ValueError) as error:
        for file in files:
            problem = file.problem()
            if problem:
                raise ConfigError(f"{file}: {problem}") from error
        names = " and ".join(map(str, files))
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            what = "they do not belong together: give the key that the certificate was made with"
        else:
            reason = getattr(error, "reason", None) or error
            what = f"OpenSSL cannot use what is in there ({reason}): make it anew"
        raise ConfigError(f"{names}: {what}") from error
