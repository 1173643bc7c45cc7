"""How the webhooks are reached and where their certificates come from."""

from __future__ import annotations

from pathlib import Path

import attrs

from jobsetpy.domain.coscheduling.backends import CoschedulerSight, PodMarkers
from jobsetpy.domain.features import Features
from jobsetpy.domain.startup_groups.barrier import SHELL_IMAGE
from jobsetpy.serving.namespace import own_namespace
from jobsetpy.serving.tls import TlsPolicy


@attrs.frozen(kw_only=True)
class WebhookSettings:
    """Settings of the webhook server.

    Args:
        bind_address: ``host:port`` or ``:port``; port 0 takes a free one.
        namespace: of the Secret and the Service.
        service_name: of the Service in front; it and the namespace make the certificate's name.
        secret_name: of the Secret that replicas share certificates through. It has to exist.
        certificate_dir: take ``tls.crt`` and ``tls.key`` from this folder (as cert-manager fills
            it) instead of making certificates; the CA is then injected by others, too.
        extra_dns_names: more names for the certificate; those that are IP addresses count as such.
        mutating_configuration, validating_configuration: the objects that get the CA bundle.
        check_period_s: how often Secret, configurations or files are looked at again.
        body_limit: longest request body in bytes: an update carries an object twice.
        deadline_s: longest time for one answer, if the API server asks for no less.
        drain_s: how long to serve on when the process is asked to end, in seconds.
        features: which gates are on.
        gate_followers: whether a pod under exclusive placement whose leader has no node yet is held
            by a scheduling gate; else it is refused, and the Job controller tries again.
        agent_image: of the in-place restart agent, for JobSets that ask to have it added; "" has
            them refused.
        group_image: with a shell, in which pods of a group wait for each other (KEP-498).
        group_agent_image: the agent, by which they wait in its place; "" for the shell.
        marks: what new pods of coscheduling's groups are given; others may have made them.
        coscheduler: what is seen of one, if one is looked for.
        tls: which versions and ciphers are offered.
    """

    bind_address: str = ":9443"
    namespace: str = attrs.field(factory=own_namespace)
    service_name: str = "jobset-webhook-service"
    secret_name: str = "jobset-webhook-server-cert"  # noqa: S105 - a name, not a secret
    certificate_dir: Path | None = None
    extra_dns_names: tuple[str, ...] = ()
    mutating_configuration: str = "jobset-mutating-webhook-configuration"
    validating_configuration: str = "jobset-validating-webhook-configuration"
    check_period_s: float = 10.0
    body_limit: int = 16 * 1024 * 1024
    deadline_s: float = 9.0
    drain_s: float = 0.0
    features: Features = attrs.field(factory=Features)
    gate_followers: bool = True
    agent_image: str = ""
    group_image: str = SHELL_IMAGE
    group_agent_image: str = ""
    marks: PodMarkers = attrs.field(factory=PodMarkers)
    coscheduler: CoschedulerSight | None = None
    tls: TlsPolicy = attrs.field(factory=TlsPolicy)

    @property
    def dns_names(self) -> tuple[str, ...]:
        """Names the serving certificate is for; the first is its common name."""
        return (f"{self.service_name}.{self.namespace}.svc", *self.extra_dns_names)
