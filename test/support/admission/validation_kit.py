"""JobSets as JSON for tests of validation."""

MAX = 2**31 - 1


def rjob(name: str = "w", replicas: int | None = 1, **more) -> dict:
    """Return a ReplicatedJob; ``pod`` and ``job`` are fields of the pod's and the Job's spec."""
    pod, job = more.pop("pod", {}), more.pop("job", {})
    spec = {"completionMode": "Indexed", **job}
    spec["template"] = {"spec": {"containers": [{"name": "c", "image": "i"}], **pod}}
    out = {"name": name, "groupName": "default", "template": {"spec": spec}, **more}
    return out if replicas is None else {**out, "replicas": replicas}


def jobset(*jobs: dict, name: str = "js", generate_name: str = "", **spec) -> dict:
    """Return a JobSet of these ReplicatedJobs, or of one by default."""
    metadata = {"generateName": generate_name} if generate_name else {"name": name}
    return {
        "metadata": {**metadata, "namespace": "ns"},
        "spec": {
            "successPolicy": {"operator": "All"},
            "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
            "replicatedJobs": list(jobs or (rjob(),)),
            **spec,
        },
    }


def rules(*given: dict, **more) -> dict:
    """Return a failure policy."""
    return {"rules": [{"action": "RestartJobSet", **rule} for rule in given], **more}
