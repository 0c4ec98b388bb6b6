"""Restore a rig's state from checkpoints."""

from tenterhook.keep.dcp import DcpState as DcpState
from tenterhook.keep.restore import restore as restore
