"""Request targets and server addresses, for both transports.

``urllib.parse`` does the same and more, but costs the agent 4 ms at every restart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from jobsetpy import __version__

USER_AGENT = f"jobsetpy/{__version__}"
"""Default User-Agent header; the server uses the part before the slash as default field manager."""

_unsafe = re.compile(rb"[^A-Za-z0-9._~-]")
_is_safe = re.compile(r"[A-Za-z0-9._~-]*\Z").match
_origin = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.%]+\]|[^/:@?#\[\]]+)(?::(?P<port>\d+))?"
    r"(?P<path>/[^?#]*)?\Z"
)


def percent_encode(text: str) -> str:
    """Encode ``text`` as a path segment, or as a name or value of a query (RFC 3986, 2.3)."""
    if _is_safe(text):
        return text
    return _unsafe.sub(lambda match: b"%%%02X" % match[0][0], text.encode()).decode("ascii")


def target(path: str, query: Sequence[tuple[str, str]]) -> str:
    """Return the request target: the path, which must be encoded already, with its query."""
    if not query:
        return path
    pairs = [f"{percent_encode(name)}={percent_encode(value)}" for name, value in query]
    return f"{path}?{'&'.join(pairs)}"


class Origin(NamedTuple):
    """Address of a server.

    ``host`` has no brackets; ``prefix`` is the path before that of every request, usually "".
    """

    tls: bool
    host: str
    port: int
    prefix: str

    @property
    def authority(self) -> str:
        """``host:port`` with IPv6 addresses in brackets, as in URLs and the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_origin(url: str) -> Origin:
    """Parse a server's base URL.

    Raises:
        ValueError: not an http(s) URL, or one with user, query or fragment.
    """
    match = _origin.match(url)
    if match is None:
        raise ValueError(f"not the base URL of an API server: {url!r}")
    tls = match["scheme"] == "https"
    port = int(match["port"] or (443 if tls else 80))
    return Origin(tls, match["host"].strip("[]"), port, (match["path"] or "").rstrip("/"))
