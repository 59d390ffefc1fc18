"""What tests of pages share: a node as a process, a table, a user with a token, pages of another origin."""

import contextlib
import functools
import re
import urllib.request
from collections.abc import AsyncIterator, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from tests.kerberos.realm import free_port
from tests.process.nodes import NodeProcess
from tests.records.browser.chromium import Chromium, Tab
from tests.records.site import Site, opened_site

import moorline
from moorline.catalog import EmbeddedPostgres

EXAMPLE = Path(__file__).parents[3] / "examples" / "records_page"


class Place:
    """One node on one port, which can be killed and started again."""

    def __init__(self, site: Site, browser: Chromium, folder: Path, pages_port: int) -> None:
        self.site = site
        self.token = ""
        self.pages = f"http://127.0.0.1:{pages_port}"
        """An origin of `http_origins`."""
        self.strange = f"http://localhost:{pages_port}"
        """The same pages, under an origin that is none of them."""
        self._browser = browser
        self._folder = folder
        self._port = free_port()
        self._node: NodeProcess | None = None
        self._profiles: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def node(self) -> NodeProcess:
        assert self._node is not None
        return self._node

    def start(self) -> None:
        self._node = NodeProcess(
            self._folder / "node",
            f"--catalog={self.site.dsn}",
            "--roles=records",
            f"--http=127.0.0.1:{self._port}",
            f"--set=http_origins={self.pages}",
        )

    def kill(self) -> None:
        self.node.kill()
        assert self.node.process.stdout is not None
        self.node.process.stdout.close()

    async def token_of(self, user: str, path: str) -> str:
        """A new user who may read at this path."""
        async with moorline.connect(self.node.address) as moor:
            await moor.access.add_user(user, b"swordfish")
            await moor.access.add_grant(path, user, "s")
            return (await moor.access.add_token(user, "pages")).token

    async def revoke(self, user: str, path: str) -> None:
        async with moorline.connect(self.node.address) as moor:
            await moor.access.remove_grant(path, user)

    def subscriptions(self) -> int:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=20) as answer:
            found = re.search(
                r"^moorline_records_subscriptions (\S+)", answer.read().decode(), re.M
            )
        assert found is not None
        return int(float(found[1]))

    async def profile(self) -> str:
        self._profiles.append(await self._browser.profile())
        return self._profiles[-1]

    async def forget_profiles(self) -> None:
        """Their tabs are closed, and what they kept is gone."""
        while self._profiles:
            await self._browser.forget(self._profiles.pop())

    async def tab(self, profile: str | None = None, url: str | None = None) -> Tab:
        return await self._browser.tab(profile or await self.profile(), url or f"{self.url}/")


@contextlib.contextmanager
def static_pages(folder: Path) -> Iterator[int]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.asynccontextmanager
async def opened_place(
    postgres: EmbeddedPostgres, browser: Chromium, folder: Path
) -> AsyncIterator[Place]:
    async with opened_site(postgres, folder) as site:
        with static_pages(EXAMPLE) as pages_port:
            place = Place(site, browser, folder, pages_port)
            place.start()
            try:
                place.token = await place.token_of("olga", "/records/things")
                yield place
            finally:
                with place.node:
                    pass
