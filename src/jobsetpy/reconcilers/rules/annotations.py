"""Annotations of a JobSet and of its templates, checked by their table (``jobsetpy.api``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Final, NamedTuple

import attrs

from jobsetpy.api import keys
from jobsetpy.api.annotations import ALPHA_PREFIX, OWN_PREFIXES, PREFIX, SETTINGS, TABLE, Level
from jobsetpy.reconcilers.rules.field_errors import FieldError, FieldWarning, invalid
from jobsetpy.reconcilers.rules.json_tree import Json, child, objects, pod_notes, text

_MOST_GUESSES: Final = 8
"""Maximum number of findings with a guess: an object may have thousands of unknown annotations."""
_UNREAD: Final = "nothing reads this annotation"
_LONGEST_NAME: Final = 63


class Holder(NamedTuple):
    """Object with annotations: the JobSet or a template of a ReplicatedJob.

    Args:
        level: kind of object.
        path: its field path; "" for the JobSet.
        notes: its annotations.
        job: name of the ReplicatedJob; "" for the JobSet.
    """

    level: Level
    path: str
    notes: Json
    job: str = ""


@attrs.frozen
class Findings:
    """Result of checking annotations.

    Args:
        errors: reasons for which the JobSet is refused.
        warnings: annotations that nothing reads, which other projects may write.
    """

    errors: list[FieldError] = attrs.field(factory=list)
    warnings: list[FieldWarning] = attrs.field(factory=list)


def note_field(name: str, path: str = "") -> str:
    """Return the field path of an annotation: on the JobSet, or on the object at ``path``."""
    return f"{path}{'.' if path else ''}metadata.annotations[{name}]"


def holders(jobset: Json) -> Iterator[Holder]:
    """Yield a JobSet and its templates, each with its annotations."""
    yield Holder(Level.JOBSET, "", child(jobset, "metadata", "annotations"))
    for at, job in objects(child(jobset, "spec"), "replicatedJobs"):
        path, name = f"spec.replicatedJobs[{at}].template", text(job, "name")
        yield Holder(Level.JOB, path, child(job, "template", "metadata", "annotations"), name)
        yield Holder(Level.POD, f"{path}.spec.template", pod_notes(job), name)


def changed_notes(old: Json, new: Json, names: Iterable[str]) -> list[str]:
    """Return those of the given annotations of a JobSet that were changed or removed."""
    before, after = (child(each, "metadata", "annotations") for each in (old, new))
    return [name for name in names if before.get(name) != after.get(name)]


def check_annotations(jobset: Json, old: Json | None = None) -> Findings:
    """Check names, places and values of all annotations of the JobSet API.

    Args:
        jobset: the JobSet.
        old: the stored JobSet, if there is one: what it has already is not checked again, so that
            it stays writable for clients which send it back.
    """
    found = Findings()
    mode = child(jobset, "metadata", "annotations").get(keys.IN_PLACE_AGENT_ANNOTATION)
    before = {} if old is None else {each[:1] + each[3:]: each.notes for each in holders(old)}
    for holder in holders(jobset):
        stored = before.get((holder.level, holder.job), {})
        for name, value in holder.notes.items():
            if stored.get(name) == value:
                continue
            field = note_field(name, holder.path)
            if not name.startswith((PREFIX, ALPHA_PREFIX)):
                if meant := _setting_meant(name):
                    found.warnings.append(FieldWarning(field, f"{_UNREAD}: did you mean {meant}?"))
                continue
            several = len(found.errors) + len(found.warnings) >= _MOST_GUESSES
            if why := idle_reason(name, holder.level, guess=not several):
                # Other projects may write annotations that this version does not know yet.
                ours = name.startswith(OWN_PREFIXES)
                if ours and (name not in TABLE or TABLE[name].levels):
                    found.errors.append(invalid(field, value, why))
                else:
                    found.warnings.append(FieldWarning(field, why))
            elif why := TABLE[name].problem(value) or ("" if old else _unserved(name, mode)):
                found.errors.append(invalid(field, value, why))
    return found


def idle_reason(name: str, level: Level, *, guess: bool = True) -> str:
    """Return why nothing reads an annotation of an object of this level; "" if something does.

    Args:
        name: name of the annotation.
        level: kind of object.
        guess: True to name a similar annotation, which takes about a millisecond.
    """
    row = TABLE.get(name)
    if row is None:
        known = {each.rpartition("/")[2]: each for each in SETTINGS}
        short = name.rpartition("/")[2][:_LONGEST_NAME]
        whole = f"in-place-restart-{short}"  # users often leave its beginning out
        similar = ((short, 0.7), (whole, 0.94)) if guess else ()
        alike = [
            each for word, least in similar for each in get_close_matches(word, known, 1, least)
        ]
        advice = f"did you mean {known[alike[0]]}?" if alike else "remove it"
        return f"{_UNREAD}: {advice}"
    if not row.levels:
        return "is written by programs on Jobs and pods, and has no effect here: remove it"
    if level in row.levels:
        return ""
    places = " or ".join(each.value for each in row.levels)
    return f"has no effect on a {level.value}: set it on the {places}"


def _setting_meant(name: str) -> str:
    """Return the setting whose name has no domain here, or another one, as the API group; or ""."""
    domain, _, short = name.rpartition("/")
    own = f"{PREFIX}{short}"
    if own not in SETTINGS or not own.startswith(OWN_PREFIXES):
        return ""
    # Any other domain may have a meaning of its own for such a name.
    return own if "jobset" in domain or not domain else ""


def _unserved(name: str, mode: object) -> str:
    """Return why a setting of injected agents has no effect in this mode; "" if it has."""
    row = TABLE[name]
    if row.agent and mode is None:
        return (
            f"has no effect without the annotation {keys.IN_PLACE_AGENT_ANNOTATION}: supervisor; "
            "an agent in the pod template is configured by its variables"
        )
    if row.supervisor and mode == "sidecar":
        return f'has no effect in sidecar mode, {row.supervisor}: use "supervisor", or remove it'
    return ""
