"""Kubernetes' rules for names, label values, and domain-prefixed paths.

The checks are those of k8s.io/apimachinery's validation (RFC 1035 and 1123 labels, label values);
each failure is reported separately.
"""

from __future__ import annotations

import re

LABEL_MAX = 63
SUBDOMAIN_MAX = 253
TOO_LONG_LABEL = f"must be no more than {LABEL_MAX} characters"

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_1123_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_1123 = re.compile(rf"{_DNS_1123_LABEL.pattern}(\.{_DNS_1123_LABEL.pattern})*")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_URL_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")

_DNS_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name', or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_DNS_1123_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name', or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_DNS_1123_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue', or 'my_value', "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_PREFIX_TEXT = 'must be a domain-prefixed path (such as "acme.io/foo")'


def _problems(value: str, pattern: re.Pattern[str], rule: str, longest: int) -> list[str]:
    long = [f"must be no more than {longest} characters"] if len(value.encode()) > longest else []
    return long if pattern.fullmatch(value) else [*long, rule]


def dns1035_label(value: str) -> list[str]:
    """Return the reasons why ``value`` is not a DNS-1035 label; empty if it is."""
    return _problems(value, _DNS_1035, _DNS_1035_TEXT, LABEL_MAX)


def dns1123_label(value: str) -> list[str]:
    """Return the reasons why ``value`` is not a DNS-1123 label, such as a namespace's name."""
    return _problems(value, _DNS_1123_LABEL, _DNS_1123_LABEL_TEXT, LABEL_MAX)


def dns1123_subdomain(value: str) -> list[str]:
    """Return the reasons why ``value`` is not a DNS-1123 subdomain; empty if it is."""
    return _problems(value, _DNS_1123, _DNS_1123_TEXT, SUBDOMAIN_MAX)


def label_value(value: str) -> list[str]:
    """Return the reasons why ``value`` cannot be a label's value; empty if it can."""
    return _problems(value, _LABEL_VALUE, _LABEL_VALUE_TEXT, LABEL_MAX)


def domain_prefixed_path(value: str) -> list[str]:
    """Return the reasons why a non-empty ``value`` is not of the form ``example.com/path``."""
    prefix, _, path = value.partition("/")
    if not prefix or not path:
        return [_PREFIX_TEXT]
    problems = [f"prefix part {problem}" for problem in dns1123_subdomain(prefix)]
    if not _URL_PATH.fullmatch(path):
        problems.append(f"path part must match the regex {_URL_PATH.pattern!r}")
    return problems
