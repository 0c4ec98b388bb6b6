"""Show recorded runs in a single HTML file."""

from tenterhook.view.report import report as report
