"""Room: cli. Several clusters by name: where each is, and which files prove us there.

    # ~/.config/moorline/contexts.toml
    version = 1
    current = "harbour"

    [contexts.harbour]
    address = "moors://harbour-1.example,harbour-2.example"
    ca = "/home/anna/.config/harbour-ca.pem"
    token_file = "/home/anna/.config/harbour.token"

It names files and holds no secret. `cli/context.py` has the commands, `cli/endpoint.py` asks `named` and
`current`.
"""

import os
import re
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from moorline.config.shown import escaped
from moorline.errors import ConfigError, FormatTooNew

VERSION = 1
"""Of the file; docs/formats.md."""
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")

FILES = ("ca", "certificate", "key", "user_password_file", "user_token_file", "keytab", "ccache")
"""These are kept as absolute paths: a context means the same in every folder."""


class Context(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What flags of a command would say, by the names of their parameters."""

    address: str
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    user: str | None = None
    user_password_file: str | None = msgspec.field(default=None, name="password_file")
    user_token_file: str | None = msgspec.field(default=None, name="token_file")
    kerberos: bool | None = None
    keytab: str | None = None
    ccache: str | None = None
    kerberos_principal: str | None = None
    kerberos_service: str | None = None

    def flags(self) -> dict[str, Any]:
        """As a command would have parsed them, without the address."""
        given = {name: getattr(self, name) for name in self.__struct_fields__ if name != "address"}
        return {
            name: Path(value) if name in FILES and value is not None else value
            for name, value in given.items()
        }


class Contexts(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    version: int = VERSION
    """A file without one is of before there was one."""
    current: str = ""
    contexts: dict[str, Context] = {}


def path() -> Path:
    """MOOR_CONTEXTS, or where this user's programs keep their settings."""
    named = os.environ.get("MOOR_CONTEXTS")
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(named) if named else Path(home) / "moorline" / "contexts.toml"


def kept() -> Contexts:
    """What the file has; nothing where there is none. What cannot be read is said, and not passed over."""
    file = path()
    try:
        written = tomllib.loads(file.read_text(encoding="utf-8"))
        # Before the rest is looked at: a newer file may have keys that this program does not know.
        version = written.get("version", VERSION)
        if isinstance(version, int) and version > VERSION:
            raise FormatTooNew(
                f"{escaped(str(file))} was written by a newer Moorline (format {version}, this one knows up "
                f"to {VERSION}): use that one, or name another file with MOOR_CONTEXTS"
            )
        found = msgspec.convert(written, Contexts)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{escaped(str(file))} cannot be read: {escaped(str(why))}") from None
    if found.current and found.current not in found.contexts:
        raise ConfigError(
            f"{escaped(str(file))}: there is no context {escaped(found.current)}: moor context use NAME"
        )
    return found


def named(name: str) -> Context:
    found = kept().contexts
    if name not in found:
        there = ", ".join(sorted(found)) or "none"
        raise ConfigError(f"there is no context {escaped(name)}: there are: {escaped(there)}")
    return found[name]


def current() -> tuple[str, Context] | None:
    """The one that `moor context use` chose."""
    found = kept()
    return (found.current, found.contexts[found.current]) if found.current else None


def keep(contexts: Contexts) -> None:
    """Writes the file whole, or leaves it as it was."""
    file = path()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=file.parent, prefix=".contexts-", encoding="utf-8", delete=False
        ) as opened:
            try:
                opened.write(_text(contexts))
                opened.flush()
                os.fsync(opened.fileno())
                os.replace(opened.name, file)
            except BaseException:
                os.unlink(opened.name)
                raise
    except OSError as error:
        raise ConfigError(f"{escaped(str(file))} cannot be written: {error.strerror}") from None


def _text(contexts: Contexts) -> str:
    lines = [f"version = {VERSION}"]
    lines += [f"current = {_quoted(contexts.current)}"] if contexts.current else []
    for name, context in sorted(contexts.contexts.items()):
        lines += ["", f"[contexts.{_quoted(name)}]"]
        lines += [
            f"{key} = {_quoted(value)}" for key, value in msgspec.to_builtins(context).items()
        ]
    return "\n".join(lines) + "\n"


def _quoted(value: object) -> str:
    # Texts and truth values of TOML are those of JSON, but for one control character.
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
