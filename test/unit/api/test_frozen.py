"""Objects from the API are deeply frozen: a reader cannot change them for other readers."""

import copy
import json
import pickle

import attrs
import msgspec
import pytest

from jobsetpy.api._frozen import FrozenDict, FrozenList
from jobsetpy.api._wire import field, to_json, wire
from jobsetpy.api.core import ConfigMap, LabelledNode, Pod
from jobsetpy.api.jobset import JobSet
from jobsetpy.testing import decoded, make_jobset

META = {"name": "a", "labels": {"a": "b"}, "annotations": {}}


@wire
class Base:
    """Fields of every mutable type."""

    free: dict[str, int] = field(factory=dict)
    listed: list[str] = field(factory=list)
    deep: tuple[dict[str, list[int]], ...] = ()
    plain: str = ""


@wire
class Child(Base):
    """A subclass with its own post-init step."""

    more: object = None

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "plain", self.plain.upper())


@pytest.mark.parametrize(
    "change",
    [
        lambda obj: obj.metadata.labels.__setitem__("a", "c"),
        lambda obj: obj.metadata.labels.update(a="c"),
        lambda obj: obj.metadata.labels.pop("a"),
        lambda obj: obj.metadata.labels.popitem(),
        lambda obj: obj.metadata.labels.clear(),
        lambda obj: obj.metadata.labels.__delitem__("a"),
        lambda obj: obj.metadata.labels.__ior__({"a": "c"}),
        lambda obj: obj.metadata.annotations.setdefault("a", "c"),
        lambda obj: obj.data.update(a="c"),
    ],
)
def test_mappings_of_decoded_objects_cannot_be_changed(change):
    """All changes of a dict are refused, and the error has the remedy."""
    obj = decoded(ConfigMap, {"metadata": META, "data": {"k": "v"}})
    with pytest.raises(TypeError, match=r"cannot be changed: change a copy \(copy.deepcopy\)"):
        change(obj)
    assert obj == decoded(ConfigMap, {"metadata": META, "data": {"k": "v"}})


def test_templates_are_deeply_frozen():
    """Lists and mappings inside untyped fields cannot be changed either."""
    job_set = decoded(JobSet, make_jobset("a").replicated_job("w").build())
    template = job_set.spec.replicated_jobs[0].template
    containers = template["spec"]["template"]["spec"]["containers"]

    with pytest.raises(TypeError):
        containers[0]["image"] = "x"
    for change in (containers.clear, containers.reverse, lambda: containers.append({})):
        with pytest.raises(TypeError, match="a list of an object"):
            change()


@pytest.mark.parametrize("cls", [Base, Child])
def test_every_type_of_field_is_frozen(cls):
    """Dicts, lists and tuples of them are frozen in decoded, constructed and evolved objects."""
    data = {"free": {"a": 1}, "listed": ["x"], "deep": [{"a": [1]}], "plain": "p"}
    by_hand = cls(free={"a": 1}, listed=["x"], deep=({"a": [1]},), plain="p")
    for obj in (decoded(cls, data), by_hand, attrs.evolve(by_hand, free={"a": 1})):
        assert obj == by_hand
        assert type(obj.free) is FrozenDict
        assert type(obj.listed) is FrozenList
        assert type(obj.deep[0]) is FrozenDict
        assert type(obj.deep[0]["a"]) is FrozenList
    assert decoded(Child, data).plain == "P"
    assert type(decoded(Child, {"more": {"a": [{}]}}).more["a"]) is FrozenList


def test_defaults_are_frozen():
    """The empty default of labels is shared, so it cannot be changed."""
    for obj in (Pod(), decoded(Pod, {})):
        with pytest.raises(TypeError):
            obj.metadata.labels["a"] = "b"


def test_labels_of_nodes_are_frozen():
    """Their class interns them in its own post-init step."""
    node = decoded(LabelledNode, {"metadata": {"name": "n", "labels": {"zone": "a"}}})
    with pytest.raises(TypeError):
        node.metadata.labels["zone"] = "b"


def test_copies_can_be_changed():
    """A copy is an ordinary dict or list; a deep copy is so at all levels."""
    deep = decoded(Base, {"deep": [{"a": [1]}]}).deep[0]
    mine = copy.deepcopy(deep)
    mine["a"].append(2)
    mine["b"] = [3]
    flat = copy.copy(deep)
    flat["b"] = []
    assert (type(mine), type(mine["a"]), type(flat)) == (dict, list, dict)
    assert type(copy.copy(deep["a"])) is list
    assert type(deep | {"b": 1}) is dict
    assert deep == {"a": [1]}
    assert pickle.loads(pickle.dumps(deep)) == deep


def test_frozen_containers_are_encoded_as_dicts_and_lists():
    """Both encoders accept them, and ``to_json`` returns ordinary data."""
    obj = decoded(Base, {"free": {"a": 1}, "listed": ["x"]})
    assert msgspec.json.encode(obj.free) == b'{"a":1}'
    assert msgspec.to_builtins({"f": obj.free, "l": obj.listed}) == {"f": {"a": 1}, "l": ["x"]}
    assert json.dumps(obj.listed) == '["x"]'
    assert {type(each) for each in to_json(obj).values()} == {dict, list}
