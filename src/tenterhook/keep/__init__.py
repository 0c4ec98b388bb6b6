"""A rig's state in checkpoints, and restoring it."""

from tenterhook.keep.dcp import DcpState as DcpState
from tenterhook.keep.restore import restore as restore
