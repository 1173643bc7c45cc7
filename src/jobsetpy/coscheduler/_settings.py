"""How the coscheduler is reached, whom it lets in, and how much it does at a time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.domain.coscheduling.state import Limits
from jobsetpy.serving.namespace import own_namespace

SCHEDULER_NAME: Final = "system:kube-scheduler"
"""Common name of the certificate that a cluster's own scheduler has."""
MAX_HELD: Final = 50_000
"""Default maximum of held requests, of some 10 kB each."""


@attrs.frozen(kw_only=True)
class CoschedulerSettings:
    """Settings of the coscheduler.

    Args:
        bind_address: of the extender, ``host:port`` or ``:port``; port 0 takes a free one.
        path_prefix: in front of ``/bind`` and ``/preempt``.
        namespace: of the Secrets, the Service, and the Lease that tells managers of the queue.
        service_name: of the Service in front; it and the namespace make the certificate's name.
        extra_dns_names: more names for a certificate of its own; IP addresses count as such.
        server_secret, client_secret: Secrets that hold certificates of the coscheduler's own, for
            itself and for the scheduler. They have to exist.
        certificate_dir: take ``tls.crt`` and ``tls.key`` (and ``ca.crt``, unless ``client_ca_file``
            says otherwise) from this folder instead of making certificates.
        client_ca_file: authorities of clients' certificates, PEM.
        client_names: common names of clients that are let in.
        plain_http: no TLS and no client certificates. For tests on loopback only.
        check_period_s: how often certificates are looked at again.
        limits: times and bounds of groups.
        concurrent_writes: maximum concurrent writes of gates and binds.
        max_held: maximum held requests; fewer if the process may not have as
            many files open.
        backlog: maximum connections that wait to be accepted; the kernel may allow fewer.
        ordinary_pods: whether pods of no group are bound when the scheduler asks for it.
        capacity_check: lift a group only when there may be room for it. Needs all pods and nodes in
            the cache. Not where a cluster autoscaler is to make room: it does not see gated pods.
        scheduler_name: of the scheduler that asks it, if it is not the default one; managers that
            are not told otherwise give it to pods of groups.
        member_resource: whether it is asked only about pods that request the member resource, which
            managers then give to pods of groups.
        grace_s: how long binds of a complete group may take when the process ends.
    """

    bind_address: str = ":9443"
    path_prefix: str = "/ext"
    namespace: str = attrs.field(factory=partial(own_namespace, outside=keys.SYSTEM_NAMESPACE))
    service_name: str = "jobset-coscheduler"
    extra_dns_names: tuple[str, ...] = ()
    server_secret: str = "jobset-coscheduler-server-cert"  # noqa: S105 - a name, not a secret
    client_secret: str = "jobset-coscheduler-client-cert"  # noqa: S105 - a name, not a secret
    certificate_dir: Path | None = None
    client_ca_file: Path | None = None
    client_names: tuple[str, ...] = (SCHEDULER_NAME,)
    plain_http: bool = False
    check_period_s: float = 10.0
    limits: Limits = attrs.field(factory=Limits)
    concurrent_writes: int = 32
    max_held: int = MAX_HELD
    backlog: int = 4096
    ordinary_pods: bool = True
    capacity_check: bool = True
    scheduler_name: str = ""
    member_resource: bool = False
    grace_s: float = 5.0

    @property
    def dns_names(self) -> tuple[str, ...]:
        """Names the serving certificate is for; the first is its common name."""
        service = f"{self.service_name}.{self.namespace}.svc"
        return (service, f"{service}.cluster.local", *self.extra_dns_names)
