"""Show a recorded run as one HTML file."""

from tenterhook.view.report import report as report
