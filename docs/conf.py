"""Configure Sphinx. `scripts/docs` builds the site and fails on every warning."""

import re

project = "tenterhook"
html_show_copyright = False
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "jupyter_execute"]

html_theme = "furo"
html_title = "tenterhook"
html_static_path = ["_static"]
html_css_files = ["site.css"]

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
nb_execution_mode = "off"  # a test runs the notebook

default_role = "code"  # docstrings have code in single backticks
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # an attribute that autodoc documents itself is not documented twice
python_use_unqualified_type_names = True

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"  # copies what is typed, not what is printed


def show_file_names(app, page, source) -> None:
    """Show the file name of a fence such as `python train.py` above the block, where GitHub ignores it."""
    fence = re.compile(r"^```(python|toml|json|bash) (\S+)$", re.MULTILINE)
    source[0] = fence.sub(r"```{code-block} \1\n:caption: \2\n", source[0])


def show_plain_types(app, what, name, obj, options, signature, returns):
    """Show the type of a parameter without the limits that the reader of plans checks."""
    if signature:
        signature = re.sub(r"Annotated\[(\w+), msgspec\.Meta\([^)]*\)\]", r"\1", signature)
        signature = re.sub(r"\b(Positive|Fraction)\b", "float", signature)
        signature = re.sub(r"\bOver\b", "Literal['target', 'hook']", signature)
    return signature, returns


def setup(app) -> None:
    app.connect("autodoc-process-signature", show_plain_types)
    app.connect("source-read", show_file_names)
