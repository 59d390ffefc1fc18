"""Environments with fewer packages than this one: what an extra does not bring cannot be imported there."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from tests.process.nodes import clean_environment

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


def name_of(requirement: str) -> str:
    """The package that is required, as pip compares names."""
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def required(*extras: str) -> set[str]:
    """What pyproject.toml names for a plain installation, and for these extras. It is read from there, since
    what is installed here may tell of an earlier one."""
    lines = list(PROJECT["dependencies"])
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    return {name_of(line) for line in lines}


def closure(*extras: str) -> set[str]:
    """These packages, and all that pip would install with them."""
    found: set[str] = set()
    waiting = required(*extras)
    while waiting:
        name = waiting.pop()
        found.add(name)
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # of another system
        waiting |= {name_of(line) for line in lines if "extra ==" not in line} - found
    return found


def hidden(*extras: str) -> list[str]:
    """The modules of this environment that one with only these extras would not have."""
    there = closure(*extras) | {"moorline"}
    return sorted(
        module
        for module, packages in metadata.packages_distributions().items()
        if not there & {name_of(one) for one in packages}
    )


def run_without(modules: list[str], code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own that cannot import these modules."""
    hide = f"import sys; sys.modules.update(dict.fromkeys({modules!r}))\n"
    return subprocess.run(
        [sys.executable, "-c", hide + code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=clean_environment(),
        check=False,
    )
