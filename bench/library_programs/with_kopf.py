"""The controller of bench/library.py on kopf, in its usual style."""

import kopf

ANNOTATION = "bench.example.com/value"


@kopf.on.create("configmaps")
@kopf.on.update("configmaps", field="data.value")
async def copied(body, patch, **_):
    patch.metadata.annotations[ANNOTATION] = body["data"]["value"]
