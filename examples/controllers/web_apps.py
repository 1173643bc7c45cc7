"""WebApp: a Deployment, and webhooks, in one program.

cd examples/controllers
jobsetpy crds web_apps:WebApp | kubectl apply -f -
jobsetpy webhooks web_apps:setup --namespace team | kubectl apply -f -
jobsetpy run web_apps:setup
"""

from collections.abc import Iterator
from typing import ClassVar

import attrs

from jobsetpy import runtime as rt

NAME = "web-apps"


@rt.model
class Image:
    repository: str = rt.field(default="", required=True, min_length=1)
    tag: str = ""


@rt.model
class Spec:
    image: Image = Image()
    replicas: int = rt.field(default=1, defaulted=True, minimum=0)
    max_surge: int = rt.field(default=0, minimum=0)


@rt.model
class Status:
    ready: int = 0


@rt.resource("example.com", "v1", "WebApp", "webapps")
@rt.model
class WebApp:
    """Copies of a web server."""

    RESOURCE: ClassVar[rt.ResourceInfo]
    metadata: rt.ObjectMeta = rt.ObjectMeta()
    spec: Spec = Spec()
    status: Status = Status()


def default(app: WebApp) -> WebApp:
    image = rt.evolve(app.spec.image, tag=app.spec.image.tag or "latest")
    return rt.evolve(app, spec=rt.evolve(app.spec, image=image))


def validate(asked: rt.AdmissionRequest[WebApp]) -> Iterator[rt.Invalid | rt.Warn]:
    if asked.new is None:
        return
    spec = asked.new.spec
    if spec.max_surge > spec.replicas:
        yield rt.Invalid("spec.maxSurge", f"at most spec.replicas, which is {spec.replicas}")
    if spec.image.tag == "latest":
        yield rt.Warn("spec.image.tag: latest may be another image at each start")


@attrs.frozen
class WebApps:
    """Keep one Deployment for each WebApp."""

    client: rt.Client

    async def reconcile(self, app: WebApp) -> rt.Result:
        where, name, spec = app.metadata.namespace, app.metadata.name, app.spec
        labels = {"app.kubernetes.io/instance": name}
        container = {"name": "web", "image": f"{spec.image.repository}:{spec.image.tag}"}
        rolling = {"maxSurge": spec.max_surge, "maxUnavailable": 1}
        servers = {
            "replicas": spec.replicas,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        }
        made = await rt.create_or_apply(
            self.client, rt.Deployment, where, name, {"spec": servers}, owner=NAME, controller=app
        )
        await rt.patch_status(self.client, app, Status(ready=made.obj.status.ready_replicas))
        return rt.Result.done()


def setup(manager: rt.Manager) -> None:
    apps, deployments = manager.informer(WebApp), manager.informer(rt.Deployment)
    reconcile = WebApps(manager.client).reconcile
    manager.add(rt.controller_for(apps, reconcile, name=NAME, owns=[deployments]))
    webhook = rt.Webhook(WebApp, default=default, validate=validate)
    rt.serve_webhooks(manager, webhook, name=NAME)
