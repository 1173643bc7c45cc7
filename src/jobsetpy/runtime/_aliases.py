"""Names that are shorter for controller authors than where they are defined."""

from jobsetpy.api._wire import wire as model
from jobsetpy.api.durations import parse_duration as duration
from jobsetpy.client import Client as KubeClient
from jobsetpy.observability.logging import configure as configure_logging

__all__ = ["KubeClient", "configure_logging", "duration", "model"]
