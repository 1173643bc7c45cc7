"""Images as tar files: the same input gives the same bytes, and a runtime finds what it needs."""

import json
import os
import struct
import tarfile

import pytest

from images import basic, containerfile, python_root
from images.archive import Image, Layer


def layer_of(folder):
    layer = Layer()
    layer.tree(folder, "app")
    layer.folder("tmp", mode=0o1777)
    layer.link("bin/sh", "busybox")
    layer.file("etc/passwd", "root\n")
    return layer


def test_the_same_files_give_the_same_image(tmp_path):
    """Neither the order of making, nor times, nor the folder's name show."""
    ids = []
    for number, names in enumerate((["a", "b"], ["b", "a"])):
        source = tmp_path / f"source{number}"
        source.mkdir()
        for name in names:
            (source / name).write_text(name)
            os.utime(source / name, (number, number))
        image = Image(reference="localhost/x:1", layers=[layer_of(source)], env={"A": "1"})
        ids.append(image.write(tmp_path / f"{number}.tar"))
    assert ids[0] == ids[1]
    assert (tmp_path / "0.tar").read_bytes() == (tmp_path / "1.tar").read_bytes()
    assert sorted(p.name for p in tmp_path.glob("*.tar*")) == ["0.tar", "1.tar"]


def test_archive_holds_what_a_runtime_reads(tmp_path):
    """The manifest names configuration and layers; the configuration says how to run it."""
    image = Image(
        reference="localhost/x:1",
        layers=[layer_of(tmp_path), Layer()],
        entrypoint=["/x"],
        command=["y"],
        user="65532:65532",
    )
    out = tmp_path / "out" / "x.tar"
    image_id = image.write(out)
    with tarfile.open(out) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json"))
        config = json.load(tar.extractfile(manifest["Config"]))
        with tarfile.open(fileobj=tar.extractfile(manifest["Layers"][0])) as layer:
            members = {member.name: member for member in layer.getmembers()}
    assert manifest["RepoTags"] == ["localhost/x:1"]
    assert manifest["Config"] == f"{image_id.removeprefix('sha256:')}.json"
    assert len(config["rootfs"]["diff_ids"]) == len(manifest["Layers"]) == 2
    assert config["config"]["Entrypoint"] == ["/x"]
    assert config["config"]["Cmd"] == ["y"]
    assert config["config"]["User"] == "65532:65532"
    assert members["tmp"].mode == 0o1777
    assert members["bin"].isdir()
    assert members["bin/sh"].linkname == "busybox"
    assert {member.uid for member in members.values()} == {0}
    assert {member.mtime for member in members.values()} == {0}


def test_tree_keeps_links_and_modes_and_leaves_out_what_it_is_told(tmp_path):
    """A link to a folder is a link, a program stays runnable, a refused folder is not entered."""
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


@pytest.mark.parametrize(("kinds", "expected"), [([1, 6], False), ([6, 3, 1], True)])
def test_static_programs_are_told_from_others(kinds, expected):
    """A program with an interpreter among its headers needs shared libraries."""
    header = bytearray(64 + 56 * len(kinds))
    struct.pack_into("<Q", header, 0x20, 64)
    struct.pack_into("<HH", header, 0x36, 56, len(kinds))
    for index, kind in enumerate(kinds):
        struct.pack_into("<I", header, 64 + 56 * index, kind)
    assert basic.needs_loader(bytes(header)) is expected


CONTAINERFILE = """\
ARG PYTHON=x
FROM ${PYTHON} AS agent-files
# comment
RUN true \\
 && cp -r __init__.py aio /app/jobsetpy/ \\
 && true
FROM scratch AS agent
ENV PYTHONPATH=/app B="two words"
USER 1:1
ENTRYPOINT ["python", "-s", "-OO", "-m", "x"]
FROM scratch AS other
ENTRYPOINT ["python"]
CMD ["run"]
FROM scratch AS broken
USER 1
"""


def test_containerfile_says_how_to_run_each_target(tmp_path):
    """Entry point, environment, user, and the parts of the package come from one file."""
    path = tmp_path / "Containerfile"
    path.write_text(CONTAINERFILE)
    agent = containerfile.read_target(path, "agent")
    assert agent.entrypoint == ["python", "-s", "-OO", "-m", "x"]
    assert agent.optimize == 2
    assert agent.env == {"PYTHONPATH": "/app", "B": "two words"}
    assert agent.user == "1:1"
    assert agent.packages == ["__init__.py", "aio"]
    other = containerfile.read_target(path, "other")
    assert (other.optimize, other.command, other.packages) == (0, ["run"], None)
    for name in ("broken", "none"):
        with pytest.raises(ValueError, match=name):
            containerfile.read_target(path, name)


def test_the_projects_containerfile_is_understood():
    """Both targets can be read, and the agent's parts of the package exist."""
    project = containerfile.Path(__file__).resolve().parents[3]
    agent = containerfile.read_target(project / "Containerfile", "agent")
    assert agent.packages
    for part in agent.packages:
        assert (project / "src" / "jobsetpy" / part).exists()
    assert containerfile.read_target(project / "Containerfile", "manager").packages is None


def test_ldd_output_is_read():
    """Libraries and the loader, but not what the kernel provides."""
    text = (
        "\tlinux-vdso.so.1 (0x00007ffd)\n"
        "\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f1)\n"
        "\t/lib64/ld-linux-x86-64.so.2 (0x00007f2)\n"
        "\tstatically linked\n"
    )
    libraries = ["/lib/x86_64-linux-gnu/libz.so.1", "/lib64/ld-linux-x86-64.so.2"]
    assert python_root.parse_ldd(text) == libraries
    with pytest.raises(FileNotFoundError, match=r"libq\.so"):
        python_root.parse_ldd("\tlibq.so => not found\n")
