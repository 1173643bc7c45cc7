"""How webhooks are reached and where their certificates come from."""

from __future__ import annotations

from pathlib import Path

import attrs

from jobsetpy.serving.namespace import own_namespace
from jobsetpy.serving.tls import TlsPolicy


@attrs.frozen(kw_only=True)
class WebhookServerSettings:
    """Settings of a server of webhooks.

    Args:
        bind_address: ``host:port`` or ``:port``; port 0 takes a free one.
        namespace: of the Secret and the Service.
        service_name: of the Service in front; it and the namespace make the certificate's name.
        secret_name: of the Secret that replicas share certificates through. It has to exist.
        certificate_dir: take ``tls.crt`` and ``tls.key`` from this folder (as cert-manager fills
            it) instead of making certificates; the CA is then injected by others, too.
        authority_name: name in the certificate of the authority that issues it.
        extra_dns_names: more names for the certificate; those that are IP addresses count as such.
        mutating_configuration: the object that gets the CA bundle; "" if there is none.
        validating_configuration: the same.
        definitions: names of CustomResourceDefinitions that get it, too, for conversions.
        check_period_s: how often Secret, configurations or files are looked at again.
        body_limit: longest request body in bytes: an update carries an object twice.
        deadline_s: longest time for one answer, if the API server asks for no less.
        drain_s: how long to serve on when the process is asked to end, in seconds.
        tls: which versions and ciphers are offered.
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
    definitions: tuple[str, ...] = ()
    check_period_s: float = 10.0
    body_limit: int = 16 * 1024 * 1024
    deadline_s: float = 9.0
    drain_s: float = 0.0
    tls: TlsPolicy = attrs.field(factory=TlsPolicy)

    @property
    def dns_names(self) -> tuple[str, ...]:
        """Names the serving certificate is for; the first is its common name."""
        return (f"{self.service_name}.{self.namespace}.svc", *self.extra_dns_names)
