"""Sphinx: `scripts/docs` builds the pages, and fails at a link that leads nowhere."""

project = "tenterhook"
extensions = ["myst_nb"]
html_theme = "furo"
html_title = "tenterhook"
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
exclude_patterns = ["_build", "jupyter_execute"]
nb_execution_mode = "off"
nitpicky = True
suppress_warnings = ["misc.highlighting_failure", "myst.nested_header"]
