"""Kubernetes client for asyncio: typed verbs, one error tree, deadlines everywhere.

``connect()`` returns a ``Client`` with the same configuration as ``kubectl``. The parts can be used
separately: ``Client`` works on any ``Transport``, of which there are two.

Each name is loaded on first use: the agent and ``kubectl jobset``, which start often, import only
the modules they need; only ``connect()`` imports kubernetes_asyncio and aiohttp.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from jobsetpy.client._aiohttp import AiohttpTransport
    from jobsetpy.client._client import Client
    from jobsetpy.client._connect import connect
    from jobsetpy.client._errors import error_from_response, error_from_status
    from jobsetpy.client._fence import WriteFence
    from jobsetpy.client._frames import WatchFrame, WatchStream
    from jobsetpy.client._models import Page, decoder_of
    from jobsetpy.client._ratelimit import RateLimiter
    from jobsetpy.client._send import RequestObserver
    from jobsetpy.client._slim import H11Transport
    from jobsetpy.client._transport import ByteStream, HttpRequest, HttpResponse, Transport
    from jobsetpy.client._write_log import Writes, noted_writes

__all__ = [
    "AiohttpTransport",
    "ByteStream",
    "Client",
    "H11Transport",
    "HttpRequest",
    "HttpResponse",
    "Page",
    "RateLimiter",
    "RequestObserver",
    "Transport",
    "WatchFrame",
    "WatchStream",
    "WriteFence",
    "Writes",
    "connect",
    "decoder_of",
    "error_from_response",
    "error_from_status",
    "noted_writes",
]


_HOMES: Final = {
    "_aiohttp": ("AiohttpTransport",),
    "_client": ("Client",),
    "_connect": ("connect",),
    "_errors": ("error_from_response", "error_from_status"),
    "_fence": ("WriteFence",),
    "_frames": ("WatchFrame", "WatchStream"),
    "_models": ("Page", "decoder_of"),
    "_write_log": ("Writes", "noted_writes"),
    "_ratelimit": ("RateLimiter",),
    "_send": ("RequestObserver",),
    "_slim": ("H11Transport",),
    "_transport": ("ByteStream", "HttpRequest", "HttpResponse", "Transport"),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a name's module (PEP 562)."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return __all__
