"""Define the bins of the `histogram` action, which actions, sinks and reports share."""

from __future__ import annotations

#: number of bins of a recorded histogram
BINS = 64
#: binary exponent of the first bin, which also counts all smaller magnitudes
LOWEST_EXPONENT = -40
