"""Website: defaults, checks, and two versions of one kind. Webhooks alone, without a controller.

cd examples/controllers
jobsetpy webhooks websites:setup --namespace team | kubectl apply -f -
jobsetpy run websites:setup

The first of these prints the CRD as well. Versions are converted whenever a client asks for
the one that is not stored.
"""

from collections.abc import Iterator
from typing import ClassVar

from jobsetpy import runtime as rt

NAME = "websites"


@rt.model
class Spec:
    host: str = ""
    port: int = 0


@rt.resource("example.com", "v2", "Website", "websites")
@rt.model
class Website:
    """A site at a host and port."""

    RESOURCE: ClassVar[rt.ResourceInfo]
    metadata: rt.ObjectMeta = rt.ObjectMeta()
    spec: Spec = Spec()


@rt.model
class SpecV1:
    address: str = ""


@rt.resource("example.com", "v1", "Website", "websites")
@rt.model
class WebsiteV1:
    """A site at an address such as example.com:80."""

    RESOURCE: ClassVar[rt.ResourceInfo]
    metadata: rt.ObjectMeta = rt.ObjectMeta()
    spec: SpecV1 = SpecV1()


def up(old: WebsiteV1) -> Website:
    host, _, port = old.spec.address.partition(":")
    return Website(metadata=old.metadata, spec=Spec(host=host, port=int(port or 0)))


def down(new: Website) -> WebsiteV1:
    address = f"{new.spec.host}:{new.spec.port}"
    return WebsiteV1(metadata=new.metadata, spec=SpecV1(address=address))


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
    versions = rt.Conversion(WebsiteV1, to=Website, up=up, down=down)
    rt.serve_webhooks(manager, webhook, versions, name=NAME)
