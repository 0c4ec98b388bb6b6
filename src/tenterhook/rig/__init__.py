"""What is installed. The only room that registers hooks or touches private attributes of torch."""

from tenterhook.rig.attach import attach as attach
from tenterhook.rig.everyday import Handle as Handle
from tenterhook.rig.everyday import detach as detach
from tenterhook.rig.everyday import find_nonfinite as find_nonfinite
from tenterhook.rig.everyday import flight as flight
from tenterhook.rig.everyday import hook as hook
from tenterhook.rig.everyday import watch as watch
from tenterhook.rig.ledger import Ledger as Ledger
from tenterhook.rig.ledger import Site as Site
from tenterhook.rig.listing import Found as Found
from tenterhook.rig.listing import inventory as inventory
from tenterhook.rig.rig import Rig as Rig
from tenterhook.rig.taps import tap as tap
