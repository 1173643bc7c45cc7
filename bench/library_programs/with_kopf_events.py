"""The controller of bench/library.py on kopf's low-level handlers: no state in annotations."""

import kopf

ANNOTATION = "bench.example.com/value"


@kopf.on.event("configmaps")
async def copied(event, body, patch, **_):
    if event["type"] == "DELETED":
        return
    value = body["data"]["value"]
    if body.metadata.annotations.get(ANNOTATION) != value:
        patch.metadata.annotations[ANNOTATION] = value
