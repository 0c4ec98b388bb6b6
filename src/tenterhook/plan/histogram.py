"""The bins of the `histogram` action: actions count into them, sinks and reports draw them."""

from __future__ import annotations

#: counts that one recorded histogram has
BINS = 64
#: the exponent of two that the first bin stands for; smaller magnitudes fall into it as well
LOWEST_EXPONENT = -40
