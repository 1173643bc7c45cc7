"""The one registry that all metrics are declared in and ``/metrics`` serves."""

from __future__ import annotations

from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry

# A "_created" series beside each counter would double their number for no reader.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

REGISTRY: Final = CollectorRegistry(auto_describe=True)
"""What ``/metrics`` serves."""

prometheus_client.ProcessCollector(registry=REGISTRY)
prometheus_client.PlatformCollector(registry=REGISTRY)
prometheus_client.GCCollector(registry=REGISTRY)
