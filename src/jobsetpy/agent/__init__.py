"""The agent of in-place restarts: it runs in every worker pod, beside or around the worker.

It says which epoch its pod has reached, holds the worker back until the whole group is there, and
has the pod restarted in place when its epoch is deprecated (KEP-467, "Agent sidecar").

``barrier`` decides (no I/O), ``epoch_reporter`` patches the pod, ``probe`` answers the kubelet, and
``main`` joins them to the watch of the JobSet. All of it starts anew at every restart of the pod,
so the time to import it is part of every restart: nothing here may import attrs, structlog,
prometheus_client, aiohttp or kubernetes_asyncio. Import the submodules directly.
"""
