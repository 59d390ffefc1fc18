"""The commands of guides that are no how-to, typed on a node as they stand; and what pages configure."""

import json
import re
import subprocess
import tomllib
from pathlib import Path
from textwrap import indent

import pytest
from tests.console.nginx import Nginx
from tests.console.nginx import why_not as why_no_nginx
from tests.pages.following import POSTGRES, ROOT, Reader, needs
from tests.pages.reading import Command, File, Output
from tests.process.nodes import NodeProcess, clean_environment
from websockets.sync.client import connect

from moorline.config.load import load

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

DOCS = ROOT / "docs"
SERVE = Command(".venv/bin/moor serve", [], "ready:")
IN_PATH = Command("export PATH=$PWD/.venv/bin:$PATH", [])


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def test_the_console(tmp_path: Path) -> None:
    with Reader(tmp_path / "clone") as reader:
        reader.do(SERVE)
        reader.follow(DOCS / "console.md", is_guide=True)


def test_records(tmp_path: Path) -> None:
    with Reader(tmp_path / "clone") as reader:
        reader.do(SERVE)
        reader.do(IN_PATH)
        reader.do(Command(f'export PATH="$PATH:$(echo {POSTGRES})"', []))
        reader.do(
            Command("export DSN=postgresql://postgres@/postgres?host=$PWD/moorline-data/run", [])
        )
        table = "create table experiments (id bigint primary key, workspace_id int, state text)"
        reader.do(Command(f'psql -q "$DSN" -c "{table}"', []))
        rows = "(17, 1, 'NEW'), (18, 3, 'NEW')"
        reader.do(Command(f'psql -q "$DSN" -c "insert into experiments values {rows}"', []))
        reader.follow(DOCS / "records.md", is_guide=True)
        assert "export" in (tmp_path / "clone" / "experiments.ts").read_text()
        text = (DOCS / "records.md").read_text(encoding="utf-8")
        (asked,) = blocks(text, "json")
        with connect(f"ws://127.0.0.1:{reader.port(7412)}/records") as socket:
            socket.send(asked)
            heard: list[str] = []
            while "sync_end" not in heard:
                heard += [one["type"] for one in json.loads(socket.recv(20))]
        assert heard == ["sync_start", "record", "sync_end"]
        program = next(block for block in blocks(text, "python") if "moor.records(" in block)
        head = "import asyncio\n\nimport moorline\n\n\nasync def main() -> None:\n"
        reader.do(File("held.py", head + indent(program, "    ") + "\n\nasyncio.run(main())\n"))
        reader.do(Command("python held.py", ["1 NEW"], "NEW"))
        reader.do(Command("""psql -q "$DSN" -c "update experiments set state = 'DONE'" """, []))
        reader.do(Output("held.py", ["record …17…DONE…"]))
        reader.stop("held.py")
        reader.do(Command("moor records remove experiments --yes", []))


def test_whether_a_machine_is_fit(tmp_path: Path) -> None:
    with Reader(tmp_path / "clone") as reader:
        text = 'listen = ["tcp://127.0.0.1:7411"]\nhttp = "127.0.0.1:7412"\nmqtt = ["mqtt://127.0.0.1:1883"]\n'
        reader.do(File("moorline.toml", text))
        reader.do(IN_PATH)
        reader.do(SERVE)
        reader.do(Command("moor queue send $(moor queue create) ahoy", []))
        reader.stop()
        reader.follow(DOCS / "deploy.md", is_guide=True)


# --- what pages configure ---------------------------------------------------------------------------

SETTINGS = [
    pytest.param(block, id=f"{path.relative_to(ROOT)}:{number}")
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    for number, block in enumerate(blocks(path.read_text(encoding="utf-8"), "toml"))
    if not block.startswith("[project")
]


@pytest.mark.parametrize("text", SETTINGS)
def test_settings_of_a_page_are_those_that_there_are(text: str, tmp_path: Path) -> None:
    file = tmp_path / "moorline.toml"
    file.write_text(text)
    loaded = load({}, {}, file)
    assert any(source.startswith("file") for source in loaded.sources.values())


def test_a_setting_that_is_not_there_is_found(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="listen"):
        test_settings_of_a_page_are_those_that_there_are(
            'lisen = ["tcp://127.0.0.1:1"]\n', tmp_path
        )


def test_the_proxy_of_the_page_reaches_the_console(tmp_path: Path) -> None:
    if why := why_no_nginx():
        pytest.skip(why)
    if gone := needs("curl"):
        pytest.skip(f"no {gone} here")
    page = (DOCS / "console.md").read_text(encoding="utf-8")
    (location,) = blocks(page, "nginx")
    settings = next(block for block in blocks(page, "toml") if "http_base_path" in block)
    assert tomllib.loads(settings)["http_base_path"] == "/moor"
    file = tmp_path / "moorline.toml"
    file.write_text(settings)
    with NodeProcess(tmp_path / "data", f"--config={file}") as node:
        upstream = location.replace("http://127.0.0.1:7412", node.http.removesuffix("/moor"))
        with Nginx(tmp_path / "nginx", upstream) as proxy:
            said = subprocess.run(
                [
                    *("curl", "-s", "-o", "/dev/null", "-w", "%{http_code} %{content_type}"),
                    *("-H", "Host: www.example.org", f"{proxy.url}/moor/console/"),
                ],
                capture_output=True,
                text=True,
                check=True,
                env=clean_environment(),
            ).stdout
    assert said.startswith("200 text/html"), said
