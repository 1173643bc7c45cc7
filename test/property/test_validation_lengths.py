"""Limits of name lengths, calculated as the API's documentation says."""

from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.reconcilers.validation.create import validate_create

NAMES = st.integers(1, 60).map("n".__mul__)
GENERATED = st.integers(1, 70).map("g".__mul__)
COUNTS = st.integers(1, 20_000)


def problems(spec: dict, **metadata) -> list:
    return validate_create({"metadata": metadata, "spec": spec})


def job(name: str, replicas: int = 1, **spec) -> dict:
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


def digits(value: int) -> int:
    return len(str(value))


@given(NAMES, NAMES, COUNTS)
def test_job_names_have_63_characters_at_most(jobset, name, replicas):
    """The longest one decides."""
    found = problems({"replicatedJobs": [job(name, replicas)]}, name=jobset)
    fits = len(jobset) + len(name) + digits(replicas - 1) + 2 <= 63
    assert (found == []) is fits
    assert all("job names generated" in problem.message for problem in found)


@given(GENERATED, NAMES)
def test_generated_name_counts_58_characters_of_its_base_and_five_more(base, name):
    """A longer base is cut."""
    found = problems({"replicatedJobs": [job(name)]}, generateName=base)
    assert (found == []) is (min(len(base), 58) + 5 + len(name) + 1 + 2 <= 63)


@given(NAMES, NAMES, COUNTS, COUNTS, st.sampled_from(["Indexed", "NonIndexed"]))
def test_pod_names_of_indexed_jobs_have_63_characters_at_most(
    jobset, name, replicas, completions, mode
):
    """Those of other Jobs are not checked."""
    spec = {"completionMode": mode, "completions": completions}
    found = problems({"replicatedJobs": [job(name, replicas, **spec)]}, name=jobset)
    numbers = digits(replicas - 1) + digits(completions - 1)
    pod_fits = len(jobset) + len(name) + numbers + 9 <= 63
    job_fits = len(jobset) + len(name) + digits(replicas - 1) + 2 <= 63
    assert (found == []) is (job_fits and (pod_fits or mode == "NonIndexed"))
    assert all(problem.field == "spec.replicatedJobs[0].name" for problem in found)


@given(NAMES, NAMES, COUNTS, COUNTS, st.one_of(st.just(""), NAMES))
def test_coordinator_label_counts_the_jobset_twice_without_a_subdomain(
    jobset, name, job_index, pod_index, subdomain
):
    """Its value is a host name."""
    spec = {
        "replicatedJobs": [
            job(name, job_index + 1, completionMode="Indexed", completions=pod_index + 1)
        ],
        "coordinator": {"replicatedJob": name, "jobIndex": job_index, "podIndex": pod_index},
        "network": {"subdomain": subdomain},
    }
    found = [p for p in problems(spec, name=jobset) if "invalid label value" in p.message]
    length = len(jobset) + len(name) + digits(job_index) + digits(pod_index) + 4
    assert (not found) is (length + len(subdomain or jobset) <= 63)


@given(NAMES, NAMES)
def test_claim_names_have_63_characters_at_most(jobset, template):
    """They are the template's name, a dash and the JobSet's."""
    policy = {"templates": [{"metadata": {"name": template}}]}
    found = problems({"volumeClaimPolicies": [policy]}, name=jobset)
    too_long = [p for p in found if "template name is too long" in p.message]
    assert (not too_long) is (len(template) + 1 + len(jobset) <= 63)
