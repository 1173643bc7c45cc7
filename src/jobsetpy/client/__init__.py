"""Kubernetes client for asyncio: typed verbs, one error tree, deadlines everywhere.

``connect()`` returns a ``Client`` with the same configuration as ``kubectl``. The parts can be used
separately: ``Client`` works on any ``Transport``, of which there are two.

Each name is loaded on first use: the agent and ``kubectl jobset``, which start often, import only
the modules they need; only ``connect()`` imports kubernetes_asyncio and aiohttp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobsetpy._lazy import lazy

if TYPE_CHECKING:
    from jobsetpy.client._aiohttp import AiohttpTransport as AiohttpTransport
    from jobsetpy.client._client import DEFAULT_BURST as DEFAULT_BURST
    from jobsetpy.client._client import DEFAULT_QPS as DEFAULT_QPS
    from jobsetpy.client._client import Client as Client
    from jobsetpy.client._connect import connect as connect
    from jobsetpy.client._errors import error_from_response as error_from_response
    from jobsetpy.client._fence import WriteFence as WriteFence
    from jobsetpy.client._frames import WatchFrame as WatchFrame
    from jobsetpy.client._frames import WatchStream as WatchStream
    from jobsetpy.client._models import Page as Page
    from jobsetpy.client._models import decoder_of as decoder_of
    from jobsetpy.client._slim import H11Transport as H11Transport
    from jobsetpy.client._transport import ByteStream as ByteStream
    from jobsetpy.client._transport import HttpRequest as HttpRequest
    from jobsetpy.client._transport import HttpResponse as HttpResponse
    from jobsetpy.client._transport import Transport as Transport
    from jobsetpy.client._write_log import Writes as Writes
    from jobsetpy.client._write_log import noted_writes as noted_writes

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_aiohttp": ("AiohttpTransport",),
        "_client": ("DEFAULT_BURST", "DEFAULT_QPS", "Client"),
        "_connect": ("connect",),
        "_errors": ("error_from_response",),
        "_fence": ("WriteFence",),
        "_frames": ("WatchFrame", "WatchStream"),
        "_models": ("Page", "decoder_of"),
        "_slim": ("H11Transport",),
        "_transport": ("ByteStream", "HttpRequest", "HttpResponse", "Transport"),
        "_write_log": ("Writes", "noted_writes"),
    },
)
