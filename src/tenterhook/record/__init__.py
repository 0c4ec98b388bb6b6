"""Convert the numbers that hooks measure to rows, and pass the rows to sinks, run folders and flight recorders.

This package does not access the model. Reading a run does not import torch.
"""

from typing import TYPE_CHECKING, Any

from tenterhook.record.run import Run as Run
from tenterhook.record.run import no_run_in as no_run_in
from tenterhook.record.run import open_run as open_run
from tenterhook.record.run_folder.atomic_file import write_file as write_file
from tenterhook.record.run_folder.folder import FINDINGS as FINDINGS
from tenterhook.record.run_folder.folder import LEDGER as LEDGER
from tenterhook.record.run_folder.folder import MODEL as MODEL
from tenterhook.record.run_folder.folder import PLAN as PLAN
from tenterhook.record.run_folder.folder import VERDICTS as VERDICTS
from tenterhook.record.run_folder.folder import Folder as Folder
from tenterhook.record.run_folder.folder import last_step as last_step
from tenterhook.record.run_folder.part import ReadLimits as ReadLimits
from tenterhook.record.run_folder.sidecars import FlightFile as FlightFile
from tenterhook.record.run_folder.sidecars import Layer as Layer
from tenterhook.record.run_folder.sidecars import Setup as Setup
from tenterhook.record.run_folder.sidecars import VerdictsFile as VerdictsFile
from tenterhook.record.run_folder.sidecars import read_json as read_json
from tenterhook.record.verdict import TRAINING as TRAINING
from tenterhook.record.verdict import Judge as Judge
from tenterhook.record.verdict import Verdict as Verdict
from tenterhook.record.verdict import verdicts_json as verdicts_json

if TYPE_CHECKING:
    from tenterhook.record.flight import Flight as Flight
    from tenterhook.record.flight import FlightReport as FlightReport
    from tenterhook.record.recorder import Recorder as Recorder
    from tenterhook.record.rows import Batch as Batch
    from tenterhook.record.rows import Row as Row
    from tenterhook.record.rows import StepTable as StepTable
    from tenterhook.record.sink_worker import Sink as Sink
    from tenterhook.record.sink_worker import Sinks as Sinks
    from tenterhook.record.sink_worker import SinkWorker as SinkWorker
    from tenterhook.record.sink_worker import Writer as Writer
    from tenterhook.record.sink_worker import as_sinks as as_sinks
    from tenterhook.record.store import Store as Store
    from tenterhook.record.suspects import ModelSnapshot as ModelSnapshot
    from tenterhook.record.suspects import Suspect as Suspect

#: the names that need torch, each with its module; they are imported when they are first used
_RECORDING = {
    "Flight": "flight",
    "FlightReport": "flight",
    "Recorder": "recorder",
    "Batch": "rows",
    "Row": "rows",
    "StepTable": "rows",
    "Sink": "sink_worker",
    "Sinks": "sink_worker",
    "SinkWorker": "sink_worker",
    "Writer": "sink_worker",
    "as_sinks": "sink_worker",
    "Store": "store",
    "ModelSnapshot": "suspects",
    "Suspect": "suspects",
}


def __getattr__(name: str) -> Any:
    if name not in _RECORDING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tenterhook.record import flight, recorder, rows, sink_worker, store, suspects

    modules = {
        module.__name__.rpartition(".")[2]: module for module in (flight, recorder, rows, sink_worker, store, suspects)
    }
    found = getattr(modules[_RECORDING[name]], name)
    globals()[name] = found
    return found
