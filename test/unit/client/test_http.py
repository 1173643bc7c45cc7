"""Request targets and server addresses."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.client._http import Origin, parse_origin, percent_encode, target


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_percent_encoding_is_that_of_the_standard_library(text):
    """Only unreserved characters are kept."""
    assert quote(text, safe="") == percent_encode(text)


def test_targets_encode_names_and_values():
    """Selectors have characters with a meaning in URLs."""
    query = (("labelSelector", "a in (b,c),d=e/f"), ("limit", "5"))

    assert target("/p", query) == "/p?labelSelector=a%20in%20%28b%2Cc%29%2Cd%3De%2Ff&limit=5"
    assert target("/p", ()) == "/p"


@pytest.mark.parametrize(
    ("url", "expected", "authority"),
    [
        ("https://10.0.0.1", Origin(True, "10.0.0.1", 443, ""), "10.0.0.1:443"),
        ("https://h.example:6443/", Origin(True, "h.example", 6443, ""), "h.example:6443"),
        ("http://[::1]:80/k8s/c-1/", Origin(False, "::1", 80, "/k8s/c-1"), "[::1]:80"),
        ("https://[fd00::10]", Origin(True, "fd00::10", 443, ""), "[fd00::10]:443"),
    ],
)
def test_origin_has_scheme_host_port_and_prefix(url, expected, authority):
    """IPv6 addresses are in brackets."""
    assert expected == parse_origin(url)
    assert authority == parse_origin(url).authority


@pytest.mark.parametrize(
    "url",
    ["", "10.0.0.1:443", "ftp://h", "https://", "https://u:p@h", "https://h?x=1", "https://::1"],
)
def test_invalid_base_url_is_refused(url):
    """A wrong address is found at the start, before the first request."""
    with pytest.raises(ValueError):
        parse_origin(url)
