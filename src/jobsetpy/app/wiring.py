"""Which controllers make up the JobSet manager."""

from __future__ import annotations

from jobsetpy.manager import Manager
from jobsetpy.reconcilers import jobs, pod_epochs


def add_jobset_controllers(manager: Manager) -> None:
    """Add the JobSet controllers to ``manager``."""
    jobs.setup(manager)
    pod_epochs.setup(manager)
