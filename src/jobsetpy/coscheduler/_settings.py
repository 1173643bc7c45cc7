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
"""Common name of the certificate that a cluster's own scheduler has."""
PATH_PREFIX: Final = "/ext"
"""Path in front of ``/bind`` and ``/preempt``."""
MAX_HELD: Final = 50_000
"""Maximum of held requests, of some 10 kB each; fewer if the limit on open files is lower."""
CONCURRENT_WRITES: Final = 32
"""Maximum concurrent writes of binds, and as many of gates."""
BACKLOG: Final = 4096
"""Maximum connections that wait to be accepted; the kernel may allow fewer."""
CHECK_PERIOD_S: Final = 10.0
"""Interval of checks of certificates."""
GRACE_S: Final = 5.0
"""Time for binds of complete gangs when the process ends."""


@attrs.frozen(kw_only=True)
class CoschedulerSettings:
    """Settings of the coscheduler.

    Args:
        bind_address: of the extender, ``host:port`` or ``:port``; port 0 takes a free one.
        namespace: of the Secrets, the Service, and the Lease that tells managers of the queue.
        service_name: name of the Service in front, also used for the names of the certificate and
            of the Secrets that hold certificates of the coscheduler and of the scheduler.
        extra_dns_names: more names for a certificate of its own; IP addresses count as such.
        certificate_dir: folder with ``tls.crt``, ``tls.key`` and ``ca.crt``, the authorities of
            clients; certificates are created in Secrets, which have to exist, when absent.
        client_names: common names of clients that are let in.
        plain_http: no TLS and no client certificates. For tests on loopback only.
        limits: times and bounds of gangs.
        capacity_check: lift a group only when there may be room for it. Needs all pods and nodes in
            the cache. Not where a cluster autoscaler is to make room: it does not see gated pods.
        scheduler_name: of the scheduler that asks it, if it is not the default one; managers that
            are not told otherwise give it to pods of groups.
        member_resource: whether it is asked only about pods that request the member resource, which
            managers then give to pods of gangs. Other pods are not bound then.
    """

    bind_address: str = ":9443"
    namespace: str = attrs.field(factory=partial(own_namespace, outside=keys.SYSTEM_NAMESPACE))
    service_name: str = "jobset-coscheduler"
    extra_dns_names: tuple[str, ...] = ()
    certificate_dir: Path | None = None
    client_names: tuple[str, ...] = (SCHEDULER_NAME,)
    plain_http: bool = False
    limits: Limits = attrs.field(factory=Limits)
    capacity_check: bool = True
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
        """Names the serving certificate is for; the first is its common name."""
        service = f"{self.service_name}.{self.namespace}.svc"
        return (service, f"{service}.cluster.local", *self.extra_dns_names)
