"""JobSets as JSON for the tests of validation."""

MAX = 2**31 - 1


def rjob(name: str = "w", replicas: int | None = 1, **more) -> dict:
    """A ReplicatedJob; ``pod`` and ``job`` are put into the pod's and the Job's spec."""
    pod, job = more.pop("pod", {}), more.pop("job", {})
    spec = {"completionMode": "Indexed", **job}
    spec["template"] = {"spec": {"containers": [{"name": "c", "image": "i"}], **pod}}
    out = {"name": name, "groupName": "default", "template": {"spec": spec}, **more}
    return out if replicas is None else {**out, "replicas": replicas}


def jobset(*jobs: dict, name: str = "js", generate_name: str = "", **spec) -> dict:
    """A JobSet of these ReplicatedJobs; one if there are none."""
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
    """A failure policy."""
    return {"rules": [{"action": "RestartJobSet", **rule} for rule in given], **more}
