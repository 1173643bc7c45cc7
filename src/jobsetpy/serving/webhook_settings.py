"""Settings of the webhook server and its certificate."""

from __future__ import annotations

from pathlib import Path

import attrs

from jobsetpy.serving.namespace import own_namespace
from jobsetpy.serving.tls import TlsPolicy


@attrs.frozen(kw_only=True)
class WebhookServerSettings:
    """Settings of a webhook server.

    Args:
        bind_address: ``host:port`` or ``:port``; port 0 takes a free one.
        namespace: namespace of the Secret and the Service.
        service_name: Service of the webhooks; its name and namespace form the certificate's name.
        secret_name: Secret in which replicas share certificates. It must exist.
        certificate_dir: folder with ``tls.crt`` and ``tls.key`` (as cert-manager fills it) to use
            instead of issuing certificates; the CA must then be injected by others, too.
        authority_name: name in the certificate of the authority that issues it.
        extra_dns_names: further names of the certificate; IP addresses are recognised as such.
        mutating_configuration: configuration that gets the CA bundle; "" if there is none.
        validating_configuration: the same.
        check_period_s: interval between checks of Secret, configurations or files, in seconds.
        body_limit: maximum size of a request body in bytes: an update carries an object twice.
        deadline_s: maximum time for one response, unless the API server asks for less.
        drain_s: time to continue serving when the process is asked to end, in seconds.
        tls: versions and ciphers to offer.
    """

    bind_address: str = ":9443"
    namespace: str = attrs.field(factory=own_namespace)
    service_name: str = ""
    secret_name: str = ""
    certificate_dir: Path | None = None
    authority_name: str = "jobsetpy"
    extra_dns_names: tuple[str, ...] = ()
    mutating_configuration: str = ""
    validating_configuration: str = ""
    check_period_s: float = 10.0
    body_limit: int = 16 * 1024 * 1024
    deadline_s: float = 9.0
    drain_s: float = 0.0
    tls: TlsPolicy = attrs.field(factory=TlsPolicy)

    @property
    def dns_names(self) -> tuple[str, ...]:
        """Names of the serving certificate; the first is its common name."""
        return (f"{self.service_name}.{self.namespace}.svc", *self.extra_dns_names)
