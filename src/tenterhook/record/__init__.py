"""What is remembered. Takes rows, knows no model."""

from tenterhook.record.recorder import Recorder as Recorder
from tenterhook.record.recorder import Row as Row
from tenterhook.record.recorder import Sink as Sink
from tenterhook.record.recorder import Table as Table
