"""Room: console. The pages of a node on its HTTP port: health, for probes and people, and figures."""

import asyncio
from collections.abc import Callable

import msgspec
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from moorline.metrics import Metrics
from moorline.net.http.messages import Request, Response, json_response, text_response
from moorline.net.http.routes import Entry, Route, Routes
from moorline.net.slices import in_slices

PAGES = "/livez /readyz /healthz /metrics"


class Health(msgspec.Struct, frozen=True):
    """What a page about health says; `ok` decides between 200 and 503."""

    ok: bool
    node: str
    roles: list[str]
    problems: list[str]


class FiguresPage:
    """Made once for all who ask before it is begun: it costs some milliseconds, and whoever comes may ask."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._newest: asyncio.Task[Response] | None = None
        self._next: asyncio.Task[Response] | None = None
        """The one that is not begun."""

    async def answer(self, _: Request) -> Response:
        if self._next is None:
            self._next = self._newest = asyncio.create_task(self._made(self._newest))
        # Whoever goes away ends it for nobody else.
        return await asyncio.shield(self._next)

    async def _made(self, before: "asyncio.Task[Response] | None") -> Response:
        if before is not None:
            await asyncio.wait([before])
        self._next = None
        await in_slices(self._metrics.count())
        return Response(200, generate_latest(self._metrics.registry), CONTENT_TYPE_LATEST)


def register(routes: Routes, metrics: Metrics, health: Callable[[str], Health]) -> None:
    """`health` is asked for one of the pages by its name: "livez", "readyz" or "healthz".

    They are open: a probe calls a node by whatever name it knows, and proves nothing.
    """

    def healthy(request: Request) -> Response:
        found = health(request.path[1:])
        return json_response(found, 200 if found.ok else 503)

    def root(_: Request) -> Response:
        return text_response(f"a Moorline node: {PAGES}\n")

    routes.missing = text_response(f"not here: {PAGES}\n", 404)
    for name in ("livez", "readyz", "healthz"):
        routes.add(Route("GET", f"/{name}", healthy, entry=Entry.OPEN))
    routes.add(Route("GET", "/metrics", FiguresPage(metrics).answer, entry=Entry.OPEN))
    routes.add(Route("GET", "/", root, entry=Entry.OPEN))
