"""What you look at: a recorded run as one HTML file."""

from tenterhook.view.report import report as report
