"""Cross-origin requests of browsers, for the origins that the pool allows. Pure."""

from collections.abc import Collection
from typing import Final

from tokenpool_router.http.messages import Request, ResponseHead

ANY: Final = "*"
METHODS: Final = b"GET, POST, OPTIONS"
MAX_AGE_SECONDS: Final = b"600"
EXPOSED: Final = b"x-request-id, x-tokenpool-shard, retry-after"


class Cors:
    """The pool's rule about origins; without any, browsers of other origins get no permission."""

    def __init__(self, origins: Collection[str]) -> None:
        self._any = ANY in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    def __bool__(self) -> bool:
        return bool(self._origins)

    def lines(self, request: Request) -> bytes:
        """Header lines for every answer to this request."""
        origin = request.fields.get(b"origin")
        if not origin or not (self._any or origin in self._origins):
            return b""
        allowed = b"*" if self._any else origin
        vary = b"" if self._any else b"vary: origin\r\n"
        return b"access-control-allow-origin: %b\r\n%baccess-control-expose-headers: %b\r\n" % (allowed, vary, EXPOSED)

    def preflight(self, request: Request) -> ResponseHead | None:
        """The answer to a browser that asks first; None for any other request."""
        if request.method != b"OPTIONS" or not request.fields.get(b"access-control-request-method"):
            return None
        wanted = request.fields.get(b"access-control-request-headers") or b"authorization, content-type"
        headers = (
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", wanted),
            (b"access-control-max-age", MAX_AGE_SECONDS),
        )
        return ResponseHead(204, b"", headers, 0)
