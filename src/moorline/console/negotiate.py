"""Room: console. Where a browser shows a ticket of Kerberos, when somebody has asked it to: it gets a pass.

It stands below a path of its own, since browsers show a ticket again, unasked, at what lies beside it. Behind
a proof that is not taken follows 403 and not 401, for which a browser would try once more.
"""

import base64
import binascii
from typing import Final

from moorline.access.negotiate import NegotiateLogins
from moorline.errors import NotAuthorized
from moorline.net.http.messages import (
    BadRequest,
    Headers,
    Request,
    Response,
    json_response,
    refusal,
)
from moorline.net.http.routes import Entry, Route, Routes

PATH: Final = "/console/login/negotiate"

_SECRET: Final[Headers] = (("cache-control", "no-store"),)


def register(routes: Routes, logins: NegotiateLogins) -> None:
    async def take(request: Request) -> Response:
        scheme, _, text = request.header(b"authorization").partition(b" ")
        if scheme.lower() != b"negotiate" or not text.strip():
            asked = (*_SECRET, ("www-authenticate", "Negotiate"))
            return refusal(
                401, NotAuthorized.code, "this browser has shown no ticket of Kerberos", asked
            )
        try:
            token = base64.b64decode(text.strip(), validate=True)
        except binascii.Error:
            raise BadRequest("Authorization: Negotiate is not base64") from None
        try:
            made, answer = await logins.take(request.peer, token)
        except NotAuthorized as error:
            return refusal(403, error.code, str(error), _SECRET)
        proven = (("www-authenticate", f"Negotiate {base64.b64encode(answer).decode()}"),)
        return json_response({"text": made.text}, headers=(*_SECRET, *(proven if answer else ())))

    routes.add(Route("POST", PATH, take, entry=Entry.PROVES))
