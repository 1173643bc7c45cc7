"""The page about forms that clients write back lists those that are tested."""

from pathlib import Path

from support.admission.forms import FORMS, JOB, gathered

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/clients.md"


def test_table_of_the_page_has_each_form():
    """They are in order, by name."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    named = [line.split(" | ")[0].removeprefix("| ") for line in rows]
    assert named[-len(FORMS) :] == [form.name for form in FORMS]


def test_gathered_forms_are_complete():
    """Those of Job templates share a JobSet, with a ReplicatedJob each."""
    first, *rest = gathered().values()
    of_jobs = sum(form.path[: len(JOB)] == JOB for form in FORMS)
    assert (of_jobs, len(FORMS) - of_jobs) == (len(first["spec"]["replicatedJobs"]), len(rest))
