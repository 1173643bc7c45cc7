"""Kubeconfigs that are read without a YAML library: the same comes out, or the library is asked."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.kubectl.plain_yaml import read

WRITTEN = """\
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: LS0tLS1CRUdJTi/+==
    server: https://127.0.0.1:6443
  name: kind-kind
- cluster:
    insecure-skip-tls-verify: true
    server: https://[::1]:6443
  name: other
contexts:
- context:
    cluster: kind-kind
    namespace: team
    user: arn:aws:iam::user/me@example.com
  name: kind-kind
current-context: kind-kind
kind: Config
preferences: {}
users:
- name: kind-kind
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      args:
      - get-token
      - --cluster
      command: aws
      env: null
      provideClusterInfo: false
- name: other
  user:
    client-certificate: /etc/a.pem
    token: eyJhbGciOi.J9-_
"""
PLAIN = WRITTEN.replace("https://[::1]:6443", "https://other:6443").replace(
    "- --cluster\n", "- cluster\n"
)


def test_what_kubectl_writes():
    """All of it is read."""
    assert yaml.safe_load(PLAIN) == read(PLAIN)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: 1",
        "a: 'b'",
        'a: "b"',
        "a: yes",
        "a: Null",
        "a: ~",
        "a: 2024-01-01",
        "a: 0x1f",
        "a: b # c",
        "# c\na: b",
        "a: &x b",
        "a: *x",
        "a: !!str b",
        "a: |\n  b",
        "a: b\n---\nc: d",
        "a: {b: c}",
        "a:",
        "a:\nb: c",
        "a: b\na: c",
        "a: b\n  c: d",
        "a:\n  b: c\n d: e",
        "- a",
        "a:\n- b\n  c: d",
        "a:\n- b: c\n   d: e",
        "a:\tb",
        "a: b\u2028c",
        "a: b:",
        "on: b",
        "a: b ",
        "a: .inf",
        "<<: a",
        "a: <<",
        WRITTEN,
    ],
)
def test_what_is_not_plain(text):
    """It is left to the library, mistakes included."""
    assert read(text) is None


WORDS = st.text("abyeno0-1.:/=+ #'\"{}[]&*!|>%@~<\n\t_", min_size=0, max_size=6)
SCALARS = WORDS | st.none() | st.booleans() | st.integers() | st.dates() | st.floats()
TREES = st.recursive(
    SCALARS,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(WORDS, each, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(WORDS, TREES, max_size=4), st.booleans())
def test_the_same_or_nothing(data, flow):
    """Whatever a library writes, this reads the same, or does not read."""
    text = yaml.safe_dump(data, default_flow_style=flow or None)
    for form in (text, yaml.safe_dump(data)):
        found = read(form)
        assert found is None or found == yaml.safe_load(form)


@given(st.lists(st.sampled_from(["a:", " a: b", "- a", "- a: b", "b: c", "  c:", " - d:"])))
def test_lines_in_any_order(lines):
    """Where the library finds a mistake, or another tree, nothing is read."""
    text = "\n".join(lines)
    found = read(text)
    if found is not None:
        assert found == yaml.safe_load(text)
