"""Room: records/browser. The files of the browser's client, at the HTTP port of a node."""

from importlib import resources
from typing import Final

from moorline.net.http.messages import Static
from moorline.net.http.routes import Entry, Route, Routes

SCRIPT: Final = "text/javascript; charset=utf-8"
TYPES: Final = "text/plain; charset=utf-8"
CLIENT: Final = "moorline-records"
REACT: Final = "records-react"

# The client is known by a short name; by that of its file too, as the hook imports it from beside itself.
FILES: Final = {
    "/records/client": CLIENT,
    f"/records/{CLIENT}": CLIENT,
    f"/records/{REACT}": REACT,
}

# A module is imported by pages of other origins only with this. Nothing of a user is in these files.
FOR_ALL: Final = {"access-control-allow-origin": "*"}


def register(routes: Routes) -> None:
    """Open to all: a page loads its scripts before it can show who is there."""
    folder = resources.files("moorline.records.browser")
    for path, name in FILES.items():
        for suffix, content_type in ((".js", SCRIPT), (".d.ts", TYPES)):
            served = Static((folder / f"{name}{suffix}").read_bytes(), content_type, FOR_ALL)
            routes.add(Route("GET", f"{path}{suffix}", served.answer, entry=Entry.OPEN))
