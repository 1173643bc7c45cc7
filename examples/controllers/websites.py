"""Website: defaults and checks. Webhooks alone, without a controller.

cd examples/controllers
jobsetpy crds websites:Website | kubectl apply -f -
jobsetpy webhooks websites:setup --namespace team | kubectl apply -f -
jobsetpy run websites:setup
"""

from collections.abc import Iterator
from typing import ClassVar

from jobsetpy import runtime as rt

NAME = "websites"


@rt.model
class Spec:
    host: str = ""
    port: int = 0


@rt.resource("example.com", "v1", "Website", "websites")
@rt.model
class Website:
    """A site at a host and port."""

    RESOURCE: ClassVar[rt.ResourceInfo]
    metadata: rt.ObjectMeta = rt.ObjectMeta()
    spec: Spec = Spec()


def default(site: Website) -> Website:
    return rt.evolve(site, spec=rt.evolve(site.spec, port=site.spec.port or 443))


def validate(asked: rt.AdmissionRequest[Website]) -> Iterator[rt.Invalid | rt.Warn]:
    new, old = asked.new, asked.old
    if new is None:
        return
    if "." not in new.spec.host:
        yield rt.Invalid("spec.host", "a name with a domain, such as www.example.com")
    if old is not None and old.spec.host != new.spec.host:
        yield rt.Invalid("spec.host", "cannot be changed: make another Website")
    if new.spec.port == 80:
        yield rt.Warn("port 80 is not encrypted")


def setup(manager: rt.Manager) -> None:
    webhook = rt.Webhook(Website, default=default, validate=validate)
    rt.serve_webhooks(manager, webhook, name=NAME)
