"""An issuer of OpenID Connect for tests, as a process of its own: `python -m tests.oidc.issuer`.

It does what an issuer does: its description, keys that it rotates, codes that are good once and for their
PKCE alone, clients that prove themselves, ID tokens. What it is told by `/control` it does wrong.
"""

import base64
import hashlib
import json
import secrets
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

from tests.oidc.signing import SigningKey, b64, by_shared_secret, joined

CLIENT = "moor/1"
SECRET = "s&cret +%"  # with signs that a form must write otherwise
WELL_KNOWN = "/.well-known/openid-configuration"
HUGE_BYTES = 1 << 30


class Issuer:
    def __init__(self, url: str) -> None:
        self.url = url
        self.turn = threading.Lock()
        self.keys = [SigningKey("ES256", "first")]
        self.codes: dict[str, dict[str, str]] = {}
        self.user: dict[str, Any] = {"sub": "anna-7", "groups": ["moor-readers", "other"]}
        self.faults: dict[str, Any] = {}
        self.life_s = 300
        self.asked: list[str] = []
        self.stopping = threading.Event()

    def description(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize?tenant=t",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "end_session_endpoint": f"{self.url}/leave",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            **self.faults.get("description", {}),
        }

    def control(self, wish: dict[str, Any]) -> dict[str, Any]:
        with self.turn:
            if "rotate" in wish:
                alg, kid = wish["rotate"]
                kept = self.keys[:1] if wish.get("keep") else []
                self.keys = [SigningKey(alg, kid), *kept]
            self.user = wish.get("user", self.user)
            self.life_s = wish.get("life_s", self.life_s)
            self.faults = wish.get("faults", self.faults)
            asked, self.asked = self.asked, []
            return {"asked": asked}

    def authorized(self, query: dict[str, str]) -> str:
        code = secrets.token_urlsafe(24)
        assert query["response_type"] == "code"
        assert "openid" in query["scope"].split()
        assert query["code_challenge_method"] == "S256"
        assert len(query["state"]) >= 32
        with self.turn:
            self.codes[code] = query
        back = {"code": code, "state": query["state"], "iss": self.url}
        back |= self.faults.get("back", {})
        return f"{query['redirect_uri']}?{urlencode({k: v for k, v in back.items() if v})}"

    def token(self, form: dict[str, str]) -> dict[str, Any] | None:
        """None for a code that is not good."""
        with self.turn:
            began = self.codes.pop(form.get("code", ""), None)
        if began is None or form.get("grant_type") != "authorization_code":
            return None
        made = b64(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if made != began["code_challenge"] or form.get("redirect_uri") != began["redirect_uri"]:
            return None
        now_s = int(time.time())
        claims = {
            "iss": self.url,
            "aud": began["client_id"],
            "nonce": began["nonce"],
            "iat": now_s,
            "exp": now_s + self.life_s,
            **self.user,
            **self.faults.get("claims", {}),
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        return {"access_token": "x", "token_type": "Bearer", "id_token": self.signed(claims)}

    def signed(self, claims: dict[str, Any]) -> str:
        key, forgery = self.keys[0], self.faults.get("forgery", "")
        if forgery == "none":
            return joined({"alg": "none", "kid": key.kid}, claims)
        if forgery == "stranger":
            return SigningKey(key.alg, key.kid).token(claims)
        if forgery == "own key":
            other = SigningKey(key.alg, key.kid)
            return other.token(claims, jwk=other.jwk)
        if forgery == "unknown key":
            return SigningKey(key.alg, secrets.token_hex(8)).token(claims)
        if forgery == "shared":
            return by_shared_secret(claims, key.pem, key.kid)
        if forgery == "shared as":
            return by_shared_secret(claims, key.pem, key.kid, key.alg)
        if forgery == "cut":
            return key.token(claims).rpartition(".")[0] + "."
        if forgery == "changed":
            head, _, signature = key.token(claims).split(".")
            return f"{head}.{b64(json.dumps({**claims, 'sub': 'root'}).encode())}.{signature}"
        return key.token(claims, **self.faults.get("head", {}))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "IssuerServer"

    def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

    def do_GET(self) -> None:
        issuer, (path, query) = self.server.issuer, self._parts()
        with issuer.turn:
            issuer.asked.append(path)
        if self._fails(path):
            return
        if path == WELL_KNOWN:
            self._json(issuer.description())
        elif path == "/keys":
            self._json({"keys": [key.jwk for key in issuer.keys] + issuer.faults.get("keys", [])})
        elif path == "/authorize":
            self._send(302, b"", location=issuer.authorized(query))
        elif path == "/leave":
            self._send(302, b"", location=query["post_logout_redirect_uri"])
        else:
            self._send(404, b"")

    def do_POST(self) -> None:
        issuer, (path, _) = self.server.issuer, self._parts()
        body = self.rfile.read(int(self.headers["content-length"]))
        if path == "/control":
            self._json(issuer.control(json.loads(body)))
            return
        with issuer.turn:
            issuer.asked.append(path)
        if self._fails(path):
            return
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        tokens = issuer.token(form) if self._is_client() else None
        if tokens is None:
            self._json({"error": "invalid_grant"}, 400)
        else:
            self._json(tokens)

    def _is_client(self) -> bool:
        scheme, _, pair = self.headers.get("authorization", "").partition(" ")
        name, _, secret = base64.b64decode(pair).decode().partition(":")
        return (scheme, unquote_plus(name), unquote_plus(secret)) == ("Basic", CLIENT, SECRET)

    def _fails(self, path: str) -> bool:
        """Whether this path is one that it is told to do wrong."""
        fault = self.server.issuer.faults.get(path)
        if fault == "hang":
            self.server.issuer.stopping.wait(60)
        elif fault == "drip":
            self._drip(b"HTTP/1.1 200 OK\r\nx: " + b"x" * 10_000)
        elif fault == "drip body":
            self._drip(b"HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n" + b" " * 10_000)
        elif fault == "huge":
            self._huge(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % HUGE_BYTES)
        elif fault == "huge head":
            self._huge(b"HTTP/1.1 200 OK\r\nx: ")
        elif fault == "huge chunks":
            self._huge(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n40000000\r\n")
        elif fault == "elsewhere":
            self._send(302, b"", location=f"{self.server.issuer.url}/keys")
        elif fault == "text":
            self._send(200, b"<html>not JSON</html>")
        elif fault == "deep":
            self._send(200, b"[" * 100_000)
        elif fault == "packed":
            self._send(200, b"\x1f\x8b", **{"content-encoding": "gzip"})
        elif fault == "half":
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{")
        elif fault == "nothing":
            pass
        elif isinstance(fault, int):
            self._send(fault, b"secret words of the issuer")
        else:
            return False
        self.close_connection = True
        return True

    def _drip(self, data: bytes) -> None:
        for byte in data:
            if self.server.issuer.stopping.wait(0.05):
                return
            try:
                self.wfile.write(bytes([byte]))
            except OSError:
                return

    def _huge(self, head: bytes) -> None:
        part = b"x" * (1 << 20)
        try:
            self.wfile.write(head)
            for _ in range(HUGE_BYTES // len(part)):
                self.wfile.write(part)
        except OSError:
            return

    def _parts(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        return parts.path, {name: values[0] for name, values in parse_qs(parts.query).items()}

    def _json(self, value: Any, status: int = 200) -> None:
        self._send(status, json.dumps(value).encode(), **{"content-type": "application/json"})

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class IssuerServer(ThreadingHTTPServer):
    daemon_threads = True
    issuer: Issuer

    def handle_error(self, request: Any, client_address: Any) -> None: ...


def main() -> None:
    """`--tls CERTIFICATE KEY` speaks https. It prints its URL, and ends with its input."""
    server = IssuerServer(("127.0.0.1", 0), Handler)
    scheme = "http"
    if sys.argv[1:2] == ["--tls"]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[2], sys.argv[3])
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    server.issuer = Issuer(f"{scheme}://127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.issuer.url, flush=True)  # noqa: T201  # its parent reads it
    sys.stdin.read()
    server.issuer.stopping.set()
    server.shutdown()


if __name__ == "__main__":
    main()
