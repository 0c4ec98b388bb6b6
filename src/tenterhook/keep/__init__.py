"""What survives: a rig's state in checkpoints, and the ways back."""

from tenterhook.keep.dcp import DcpState as DcpState
from tenterhook.keep.restore import restore as restore
