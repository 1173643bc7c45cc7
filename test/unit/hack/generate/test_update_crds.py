"""hack/generate/update_crds.py: the committed files equal the generator's output."""

from hack.generate import update_crds
from hack.generate.update_crds import trim
from jobsetpy.api import schema_embedded
from jobsetpy.api.schema_embedded import structural


def ref(name):
    return {"$ref": f"#/components/schemas/{name}"}


def document(**definitions):
    return {"components": {"schemas": definitions}}


def test_the_committed_crd_is_up_to_date():
    """config/crd equals the CRD of the types; otherwise run make generate."""
    assert update_crds.CRD.read_text() == update_crds.crd_text()


def test_the_committed_snapshot_has_its_canonical_form():
    """Writing the content of the snapshot file again gives the same file."""
    assert update_crds.SNAPSHOT.read_text() == update_crds.snapshot_text(schema_embedded.snapshot())


def test_verify_reports_drift_and_writes_nothing(tmp_path, monkeypatch, capsys):
    """--verify exits with 1, shows the differences, and does not change the file."""
    monkeypatch.setattr(update_crds, "ROOT", tmp_path)
    stale = tmp_path / "crd.yaml"
    stale.write_text(update_crds.crd_text().replace("BlockingRecreate", "Blocking"))
    before = stale.read_text()
    monkeypatch.setattr(update_crds, "CRD", stale)

    assert update_crds.main(["--verify"]) == 1
    assert stale.read_text() == before
    assert "BlockingRecreate" in capsys.readouterr().out

    assert update_crds.main([]) == 0
    assert update_crds.main(["--verify"]) == 0


def test_properties_may_be_called_like_keywords():
    """A field named "enum" or "default" is a field."""
    definition = {
        "type": "object",
        "properties": {
            name: {"type": "string"} for name in ("enum", "default", "description", "properties")
        },
    }
    trimmed = trim([("A", document(A=definition))])

    assert trimmed == {"A": definition}
    assert structural("A", trimmed) == definition


def test_trim_keeps_reachable_definitions():
    """Only definitions that a root needs are kept, without descriptions, sorted."""
    first = document(
        B={"type": "object", "description": "x", "properties": {"c": ref("C")}},
        C={"type": "object"},
        Unused={"type": "object"},
    )
    second = document(A={"type": "object"})

    found = trim([("B", first), ("A", second)])

    assert list(found) == ["A", "B", "C"]
    assert found["B"] == {"type": "object", "properties": {"c": ref("C")}}
