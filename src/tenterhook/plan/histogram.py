"""Define the histogram bins that actions, sinks and reports share."""

from __future__ import annotations

#: number of bins in a recorded histogram
BINS = 64
#: binary exponent of the first bin, which also counts all smaller magnitudes
LOWEST_EXPONENT = -40
