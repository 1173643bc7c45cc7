"""Which controllers make up the JobSet manager."""

from __future__ import annotations

from pathlib import Path

from jobsetpy.manager import Manager
from jobsetpy.reconcilers import jobs, pod_epochs


def add_jobset_controllers(manager: Manager) -> None:
    """Add the JobSet controllers to ``manager``."""
    jobs.setup(manager)
    pod_epochs.setup(manager)


def add_webhooks(
    manager: Manager, *, bind_address: str = ":9443", certificate_dir: str | None = None
) -> None:
    """Have ``manager`` serve the admission webhooks as well.

    Args:
        manager: not started yet.
        bind_address: ``host:port`` or ``:port``.
        certificate_dir: folder with ``tls.crt`` and ``tls.key``; when absent, the manager makes
            its certificates itself.
    """
    from jobsetpy import admission  # 10 MB that a manager without webhooks need not carry

    settings = admission.WebhookSettings(
        bind_address=bind_address,
        certificate_dir=None if certificate_dir is None else Path(certificate_dir),
    )
    admission.setup(manager, settings)
