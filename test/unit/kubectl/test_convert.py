"""``kubectl jobset convert``: manifests without their launchers."""

from __future__ import annotations

import yaml

from jobsetpy.api import keys
from jobsetpy.kubectl import main as plugin
from jobsetpy.kubectl import manifests
from jobsetpy.reconcilers.rules.features import Features

MANIFEST = """
kind: ConfigMap
apiVersion: v1
metadata: {name: other}
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train}
spec:
  replicatedJobs:
  - name: w
    template:
      spec:
        parallelism: 2
        completions: 2
        template:
          spec:
            containers:
            - name: main
              image: test.invalid/train:1
              command: [env, NCCL_DEBUG=INFO, torchrun, --nnodes=2]
              args: [--nproc-per-node=4, --max-restarts=3, train.py, $(OUT)]
              env:
              - {name: OUT, value: /out}
              - {name: RANK, value: "1"}
            - name: log
              image: test.invalid/log:1
              command: [tail]
"""


def convert(capsys, tmp_path, text):
    """Run the command; return exit code, documents and notes."""
    file = tmp_path / "jobset.yaml"
    file.write_text(text)
    code = plugin.main(["convert", str(file)])
    out, err = capsys.readouterr()
    return code, list(yaml.safe_load_all(out)), err.splitlines()


def test_manifest_is_converted(capsys, tmp_path):
    """It is valid and restarts in place with supervisors; other documents are kept."""
    code, (other, jobset), notes = convert(capsys, tmp_path, MANIFEST)

    template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert code == 0
    assert other["kind"] == "ConfigMap"
    assert jobset["metadata"]["annotations"] == {keys.IN_PLACE_AGENT_ANNOTATION: "supervisor"}
    policy = {"restartStrategy": "InPlaceRestart", "maxRestarts": 3}
    assert jobset["spec"]["failurePolicy"] == policy
    assert template["metadata"]["annotations"] == {
        keys.IN_PLACE_PROCESSES_ANNOTATION: "4",
        keys.IN_PLACE_PRELOAD_ANNOTATION: "auto",
        keys.IN_PLACE_CONTAINER_ANNOTATION: "main",
    }
    assert template["spec"]["containers"][0] == {
        "name": "main",
        "image": "test.invalid/train:1",
        "command": ["python", "-u", "train.py", "$(OUT)"],
        "env": [
            {"name": "OUT", "value": "/out"},
            {"name": "NCCL_DEBUG", "value": "INFO"},
            {"name": "OMP_NUM_THREADS", "value": "1"},
            {"name": "TORCHELASTIC_RUN_ID", "value": "jobset"},
        ],
    }
    assert template["spec"]["containers"][1]["command"] == ["tail"]
    assert manifests.judge(jobset, Features(), "agent").errors == []
    assert [line.rpartition("containers[0]: ")[2] for line in notes] == [
        "torchrun is replaced",
        "--max_restarts 3: the limit is spec.failurePolicy.maxRestarts",
    ]


def test_converted_manifest_that_is_invalid_is_printed_with_its_errors(capsys, tmp_path):
    """The user has to decide about the liveness probe; the exit code is 1."""
    probe = "              livenessProbe: {exec: {command: [true]}}\n              env:\n"
    text = MANIFEST.replace("              env:\n", probe)
    code, documents, notes = convert(capsys, tmp_path, text)

    assert code == 1
    assert len(documents) == 2
    assert any("error: " in line and "livenessProbe" in line for line in notes)


def test_launcher_that_cannot_be_translated_is_kept(capsys, tmp_path):
    """The document is printed unchanged, with the reason; the exit code is 1."""
    text = MANIFEST.replace("--nnodes=2", "--bogus")
    code, (_, jobset), notes = convert(capsys, tmp_path, text)

    assert code == 1
    assert jobset == list(yaml.safe_load_all(text))[1]
    assert notes[0].endswith("torchrun is left")
    assert "--bogus is not known here" in notes[1]


def test_manifests_without_a_launcher_are_an_error(capsys, tmp_path):
    """The output has no document."""
    text = MANIFEST.replace("torchrun", "python")
    code, documents, notes = convert(capsys, tmp_path, text)

    assert (code, documents) == (1, [])
    assert "no JobSet in what was given runs torchrun" in notes[0]


def test_converted_manifest_has_no_launcher(capsys, tmp_path):
    """A second conversion finds none."""
    _, documents, _ = convert(capsys, tmp_path, MANIFEST)
    code, _, _ = convert(capsys, tmp_path, yaml.safe_dump_all(documents))

    assert code == 1
