"""The documentation site: `make docs`."""

import gradproof

project = "gradproof"
author = "The gradproof maintainers"
project_copyright = "The gradproof maintainers"
version = release = gradproof.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["pictures/*.md"]
html_theme = "furo"
html_title = "gradproof"
html_copy_source = False

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

autodoc_typehints = "signature"  # the docstrings say what matters; the signature shows the types
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80  # beyond, one parameter a line
autodoc_member_order = "bysource"


def setup(app):
    """Signatures of records whose default is a factory are shown like any other."""
    app.connect("autodoc-process-signature", lambda *given: (_plain(given[5]), given[6]))


def _plain(signature):
    return signature and signature.replace("<factory>", "{}")


napoleon_google_docstring = True
napoleon_use_ivar = True
napoleon_use_rtype = False
