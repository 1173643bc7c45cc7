"""The controller of bench/library.py on kopf, as its users write one."""

import kopf

ANNOTATION = "bench.example.com/value"


@kopf.on.create("configmaps")
@kopf.on.update("configmaps", field="data.value")
async def copied(body, patch, **_):
    patch.metadata.annotations[ANNOTATION] = body["data"]["value"]
