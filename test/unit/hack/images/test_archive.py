"""Images as tar files: the same input gives the same bytes, and runtimes can load them."""

import gzip
import hashlib
import json
import tarfile

import pytest

from hack.images.archive import Image, Layer, join


def layer_of(folder):
    layer = Layer()
    layer.tree(folder, "app")
    layer.folder("tmp", mode=0o1777)
    layer.link("bin/sh", "busybox")
    layer.file("etc/passwd", "root\n")
    return layer


def read(archive, path):
    with tarfile.open(archive) as tar:
        return json.load(tar.extractfile(path))


def test_archive_has_dockers_manifest(tmp_path):
    """The manifest names configuration and layers; the configuration has the command."""
    image = Image(
        reference="localhost/x:1",
        layers=[layer_of(tmp_path), Layer()],
        entrypoint=["/x"],
        command=["y"],
        user="65532:65532",
        labels={"a": "b"},
        created=1700000000,
    )
    out = tmp_path / "out" / "x.tar"
    written = image.write(out)
    (manifest,) = read(out, "manifest.json")
    config = read(out, manifest["Config"])
    with (
        tarfile.open(out) as tar,
        tarfile.open(fileobj=tar.extractfile(manifest["Layers"][0])) as layer,
    ):
        members = {member.name: member for member in layer.getmembers()}
    assert manifest["RepoTags"] == ["localhost/x:1"]
    assert manifest["Config"] == f"blobs/sha256/{written.image_id.removeprefix('sha256:')}"
    assert len(config["rootfs"]["diff_ids"]) == len(manifest["Layers"]) == 2
    assert config["created"] == "2023-11-14T22:13:20Z"
    assert config["config"]["Entrypoint"] == ["/x"]
    assert config["config"]["Cmd"] == ["y"]
    assert config["config"]["User"] == "65532:65532"
    assert config["config"]["Labels"] == {"a": "b"}
    assert members["tmp"].mode == 0o1777
    assert members["bin"].isdir()
    assert members["bin/sh"].linkname == "busybox"
    assert {member.uid for member in members.values()} == {0}
    assert {member.mtime for member in members.values()} == {0}


@pytest.mark.parametrize(
    ("reference", "layout"),
    [
        ("localhost/x:1", True),
        ("example.com/team/x:1", True),
        ("host:5000/x:1", True),
        ("busybox:1.37", False),
        ("team/x:1", False),
    ],
)
def test_an_image_without_a_registry_has_no_layout(tmp_path, reference, layout):
    """Engines complete such names in Docker's manifest, but not in a layout."""
    out = tmp_path / "x.tar"
    Image(reference=reference, layers=[Layer()]).write(out)
    with tarfile.open(out) as tar:
        names = set(tar.getnames())
    assert "manifest.json" in names
    assert ({"oci-layout", "index.json"} <= names) is layout


def test_archive_is_a_layout_with_valid_digests(tmp_path):
    """Every blob has its digest and size, and every layer the digest of its tar file."""
    blobs, ids = {}, set()
    for compress in (False, True):
        image = Image(reference="localhost/x:1", layers=[layer_of(tmp_path)], compress=compress)
        out = tmp_path.parent / f"{tmp_path.name}-{compress}.tar"
        written = image.write(out)
        ids.add(written.image_id)
        assert read(out, "oci-layout") == {"imageLayoutVersion": "1.0.0"}
        with tarfile.open(out) as tar:
            blobs = {m.name: tar.extractfile(m).read() for m in tar if m.name.startswith("blobs")}
        for name, data in blobs.items():
            assert name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"
        (entry,) = read(out, "index.json")["manifests"]
        assert entry["digest"] == written.digest
        assert entry["annotations"]["io.containerd.image.name"] == "localhost/x:1"
        assert entry["annotations"]["org.opencontainers.image.ref.name"] == "1"
        manifest = json.loads(blob_of(blobs, entry))
        config = json.loads(blob_of(blobs, manifest["config"]))
        (layer,) = manifest["layers"]
        assert layer["mediaType"].endswith("+gzip") is compress
        data = blob_of(blobs, layer)
        tar_bytes = gzip.decompress(data) if compress else data
        assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(tar_bytes).hexdigest()}"]
        assert len(blobs) == 3
    assert len(ids) == 1, "a compressed layer does not change the image's ID"


def blob_of(blobs, descriptor):
    data = blobs["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
    assert len(data) == descriptor["size"]
    return data


def test_tree_keeps_links_and_modes_and_excludes_files(tmp_path):
    """A link to a folder is a link, a program stays executable, an excluded folder is not read."""
    (tmp_path / "no").mkdir()
    (tmp_path / "no" / "file").touch()
    (tmp_path / "run").touch()
    (tmp_path / "run").chmod(0o700)
    (tmp_path / "link").symlink_to("no")
    layer = Layer()
    layer.tree(tmp_path, "at", keep=lambda path: path.name != "no")
    assert sorted(layer.entries) == ["at/link", "at/run"]
    assert layer.entries["at/link"].link == "no"
    assert layer.entries["at/run"].mode == 0o755


def test_images_of_two_architectures_are_one_archive(tmp_path):
    """An index has both with their platforms; every blob has its digest as name."""
    parts = []
    for name in ("amd64", "arm64"):
        layer = Layer()
        layer.file("a", name)
        image = Image(reference="localhost/a:1", layers=[layer], architecture=name)
        image.write(tmp_path / f"{name}.tar")
        parts.append(tmp_path / f"{name}.tar")
    digest = join(parts, tmp_path / "both.tar")
    with tarfile.open(tmp_path / "both.tar") as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar}
    assert "manifest.json" not in files
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["digest"] == digest
    assert entry["annotations"]["io.containerd.image.name"] == "localhost/a:1"
    index = json.loads(files[f"blobs/sha256/{digest.removeprefix('sha256:')}"])
    assert [each["platform"]["architecture"] for each in index["manifests"]] == ["amd64", "arm64"]
    for each in index["manifests"]:
        manifest = json.loads(files[f"blobs/sha256/{each['digest'].removeprefix('sha256:')}"])
        config = files[f"blobs/sha256/{manifest['config']['digest'].removeprefix('sha256:')}"]
        assert json.loads(config)["architecture"] == each["platform"]["architecture"]
    for path, data in files.items():
        if path.startswith("blobs/"):
            assert hashlib.sha256(data).hexdigest() == path.rpartition("/")[2]
