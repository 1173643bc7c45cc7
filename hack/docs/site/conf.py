"""Settings of the documentation's site (hack/docs/docs_site.py makes it)."""

import re

import attrs

from jobsetpy import __version__
from jobsetpy.informers import _keyed_shard, _options

# Signatures are evaluated; this type is imported for type checkers only.
vars(_options)["KeyedShard"] = _keyed_shard.KeyedShard

project = "jobsetpy"
author = "The jobsetpy authors"
copyright = author  # noqa: A001 - the name of Sphinx's setting
version = release = __version__

extensions = [
    "myst_parser",
    "hack.docs.site.sequence",
    "hack.docs.site.tables",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
# Headings have the same anchors as on GitHub.
myst_heading_anchors = 4
# Blocks that hack/docs/site/sequence.py draws.
myst_fence_as_directive = ["mermaid"]

autodoc_member_order = "alphabetical"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
add_module_names = False
toc_object_entries_show_parents = "hide"
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"jobsetpy {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False


def with_defaults(_app, _what, _name, of, _options, signature, returned):
    """Return a signature with values in place of expressions that attrs writes."""

    def value(found):
        default = attrs.fields_dict(of)[found[1]].default
        return "..." if isinstance(default, attrs.Factory) else repr(default)

    signature = signature and re.sub(r"attr_dict\['(\w+)'\]\.default", value, signature)
    return signature and signature.replace("NOTHING", "..."), returned


def setup(app):
    """Register the handlers."""
    app.connect("autodoc-process-signature", with_defaults)
