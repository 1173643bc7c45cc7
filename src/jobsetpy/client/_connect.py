"""``connect()``: find a cluster the way ``kubectl`` does, and a client for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from jobsetpy.client._aiohttp import AiohttpTransport
from jobsetpy.client._client import Client
from jobsetpy.client._http import USER_AGENT
from jobsetpy.client._ratelimit import RateLimiter
from jobsetpy.client._send import RequestObserver
from jobsetpy.errors import ConnectFailedError


async def connect(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    qps: float = RateLimiter.DEFAULT_QPS,
    burst: int = RateLimiter.DEFAULT_BURST,
    timeout_s: float = 30.0,
    user_agent: str = USER_AGENT,
    observer: RequestObserver | None = None,
    environ: Mapping[str, str] | None = None,
) -> Client:
    """A client for the cluster that this process is meant to talk to.

    The first of these that is there: ``kubeconfig``, the files of ``$KUBECONFIG``, the service
    account of the Pod this runs in, ``~/.kube/config``. A ``context`` is looked for in files only.

    Nothing is sent: whether the server answers is seen at the first request.

    Args:
        kubeconfig: path of a kubeconfig file.
        context: a context of it instead of the current one.
        qps: requests a second that the client allows itself; 0 for no limit.
        burst: how many may go at once.
        timeout_s: deadline of calls that name none, in seconds.
        user_agent: the User-Agent header; its part before the slash is the field manager of
            writes that name no owner.
        observer: told of every request.
        environ: instead of the process's environment.

    Raises:
        ConnectFailedError: nothing of that is there, or it cannot be used.
    """
    transport = await _transport(
        kubeconfig, context, user_agent, os.environ if environ is None else environ
    )
    return Client(transport, qps=qps, burst=burst, timeout_s=timeout_s, observer=observer)


def _home_kubeconfig(environ: Mapping[str, str]) -> Path | None:
    path = Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config"
    return path if path.is_file() else None


async def _transport(
    kubeconfig: str | None, context: str | None, user_agent: str, environ: Mapping[str, str]
) -> AiohttpTransport:
    path = kubeconfig or environ.get("KUBECONFIG")
    if path:
        return await AiohttpTransport.from_kubeconfig(path, context=context, user_agent=user_agent)
    if context is None and environ.get("KUBERNETES_SERVICE_HOST"):
        return AiohttpTransport.in_cluster(environ=environ, user_agent=user_agent)
    home = _home_kubeconfig(environ)
    if home is not None:
        return await AiohttpTransport.from_kubeconfig(home, context=context, user_agent=user_agent)
    msg = "no cluster: no kubeconfig given, $KUBECONFIG unset, not in a Pod, no ~/.kube/config"
    raise ConnectFailedError(msg)
