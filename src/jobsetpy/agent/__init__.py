"""Agent for restart in place: runs in every worker pod, next to the worker or as its parent.

It reports the epoch that its pod has reached, holds the worker back until the whole restart group
has reached it, and has the pod restarted in place when its epoch is deprecated (KEP-467, "Agent
sidecar").

``barrier`` decides (no I/O), ``epoch_reporter`` patches the pod, ``probe`` answers the kubelet, and
``main`` connects them to the watch of the JobSet. All of it starts again at every restart of the
pod, so import time is part of every restart: nothing here may import attrs, structlog,
prometheus_client, aiohttp or kubernetes_asyncio. Import the submodules directly.
"""
