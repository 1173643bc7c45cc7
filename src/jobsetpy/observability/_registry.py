"""The registry of the framework's metrics, and how other packages make one of their own."""

from __future__ import annotations

from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry

# A "_created" series beside each counter would double their number for no reader.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


def new_registry() -> CollectorRegistry:
    """A registry for the metrics of one package.

    A manager serves it once it was given to ``Manager.add_metrics``.
    """
    return CollectorRegistry(auto_describe=True)


REGISTRY: Final = new_registry()
"""The framework's metrics, which every manager serves."""

prometheus_client.ProcessCollector(registry=REGISTRY)
prometheus_client.PlatformCollector(registry=REGISTRY)
prometheus_client.GCCollector(registry=REGISTRY)
