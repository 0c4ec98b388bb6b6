"""Find the first step and layer in which two recorded runs differ."""

from tenterhook.diff.compare import compare as compare
from tenterhook.diff.difference import Difference as Difference
from tenterhook.diff.plan import DiffRun as DiffRun
from tenterhook.diff.plan import diff_plan as diff_plan
from tenterhook.diff.plan import perturb as perturb
