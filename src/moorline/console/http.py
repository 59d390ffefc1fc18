"""Room: console. The pages of a node on its HTTP port: health, for probes and people, and figures."""

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


def register(routes: Routes, metrics: Metrics, health: Callable[[str], Health]) -> None:
    """`health` is asked for one of the pages by its name: "livez", "readyz" or "healthz".

    They are open: a probe calls a node by whatever name it knows, and proves nothing.
    """

    def healthy(request: Request) -> Response:
        found = health(request.path[1:])
        return json_response(found, 200 if found.ok else 503)

    async def figures(_: Request) -> Response:
        await in_slices(metrics.count())
        return Response(200, generate_latest(metrics.registry), CONTENT_TYPE_LATEST)

    def root(_: Request) -> Response:
        return text_response(f"a Moorline node: {PAGES}\n")

    routes.missing = text_response(f"not here: {PAGES}\n", 404)
    for name in ("livez", "readyz", "healthz"):
        routes.add(Route("GET", f"/{name}", healthy, entry=Entry.OPEN))
    routes.add(Route("GET", "/metrics", figures, entry=Entry.OPEN))
    routes.add(Route("GET", "/", root, entry=Entry.OPEN))
