"""Settings of the coscheduler, and the constants of its process."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.coscheduler.gang_scheduler.state import Limits
from jobsetpy.serving.namespace import own_namespace

SCHEDULER_NAME: Final = "system:kube-scheduler"
"""Default common name in the certificate of a cluster's own scheduler."""
PATH_PREFIX: Final = "/ext"
"""Path in front of ``/bind`` and ``/preempt``."""
MAX_HELD: Final = 50_000
"""Maximum number of held requests, of some 10 kB each; fewer with a lower limit on open files."""
CONCURRENT_WRITES: Final = 32
"""Maximum number of concurrent binds."""
BACKLOG: Final = 4096
"""Maximum number of pending connections: all pods of a gang open one together.

The kernel may allow fewer.
"""
CHECK_PERIOD_S: Final = 10.0
"""Interval in seconds between checks of certificates."""
GRACE_S: Final = 5.0
"""Time in seconds for binds of complete gangs when the process ends."""


@attrs.frozen(kw_only=True)
class CoschedulerSettings:
    """Settings of the coscheduler.

    Args:
        bind_address: address of the extender, ``host:port`` or ``:port``; port 0 takes a free one.
        namespace: namespace of the Secrets, the Service, and the published Lease.
        service_name: name of the Service of the extender, also used for the names of the
            certificate and of the Secrets with the certificates of the coscheduler and of the
            scheduler.
        extra_dns_names: additional names for a created certificate; IP addresses are recognized.
        certificate_dir: folder with ``tls.crt``, ``tls.key`` and ``ca.crt``, the authorities of
            clients; otherwise certificates are created in Secrets, which have to exist.
        client_names: common names of clients that are admitted.
        plain_http: no TLS and no client certificates. For tests on loopback only.
        limits: times and limits of gangs.
        scheduler_name: scheduler that calls the extender, if not the default one; managers without
            another setting give it to pods in gangs.
        member_resource: the extender is called only for pods that request the member resource,
            which managers then give to pods in gangs. Other pods are then not bound.
    """

    bind_address: str = ":9443"
    namespace: str = attrs.field(factory=partial(own_namespace, outside=keys.SYSTEM_NAMESPACE))
    service_name: str = "jobset-coscheduler"
    extra_dns_names: tuple[str, ...] = ()
    certificate_dir: Path | None = None
    client_names: tuple[str, ...] = (SCHEDULER_NAME,)
    plain_http: bool = False
    limits: Limits = attrs.field(factory=Limits)
    scheduler_name: str = ""
    member_resource: bool = False

    @property
    def server_secret(self) -> str:
        """Name of the Secret with the coscheduler's own certificate."""
        return f"{self.service_name}-server-cert"

    @property
    def client_secret(self) -> str:
        """Name of the Secret with the scheduler's certificate."""
        return f"{self.service_name}-client-cert"

    @property
    def dns_names(self) -> tuple[str, ...]:
        """Names in the serving certificate; the first is its common name."""
        service = f"{self.service_name}.{self.namespace}.svc"
        return (service, f"{service}.cluster.local", *self.extra_dns_names)
