"""Find the first step and layer in which two recorded runs differ."""

from tenterhook.diff.compare import compare as compare
from tenterhook.diff.difference import Difference as Difference
