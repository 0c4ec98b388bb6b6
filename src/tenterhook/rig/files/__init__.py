"""Write what a rig knows into the run folders: its plan, its ledger, and the layers of the model."""

from tenterhook.rig.files.run_files import RunFiles as RunFiles
from tenterhook.rig.files.run_files import model_snapshot as model_snapshot
