"""The list of the packages of others is that of pyproject.toml, with the versions of constraints.txt."""

import re
from pathlib import Path

from tests.environments import PROJECT, name_of, required

ROOT = Path(__file__).parents[1]
EXTRAS = [extra for extra in PROJECT["optional-dependencies"] if extra != "dev"]


def test_every_package_is_listed_with_its_version_and_what_it_is_for() -> None:
    rows = re.findall(
        r"^\| ([\w-]+) \| ([\d.]+) \| ([\w, ]+) \|",
        (ROOT / "THIRD-PARTY.md").read_text(),
        re.MULTILINE,
    )
    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    versions = {name_of(name): version for name, version in pins.items()}
    wanted = {(name, versions[name], "client") for name in required()}
    for name in required(*EXTRAS) - required() - {"moorline"}:
        lists = PROJECT["optional-dependencies"]
        used = [extra for extra in EXTRAS if name in map(name_of, lists[extra])]
        wanted.add((name, versions[name], ", ".join(used)))
    assert set(rows) == wanted
