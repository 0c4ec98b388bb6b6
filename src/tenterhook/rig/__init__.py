"""Install plans on models. This is the only package that registers hooks with PyTorch."""

from tenterhook.rig.api.attach import attach as attach
from tenterhook.rig.api.everyday import Handle as Handle
from tenterhook.rig.api.everyday import detach as detach
from tenterhook.rig.api.everyday import hook as hook
from tenterhook.rig.api.everyday import watch as watch
from tenterhook.rig.api.inventory import Found as Found
from tenterhook.rig.api.inventory import inventory as inventory
from tenterhook.rig.api.nonfinite import find_nonfinite as find_nonfinite
from tenterhook.rig.ledger import Ledger as Ledger
from tenterhook.rig.points.taps import tap as tap
from tenterhook.rig.rig import Rig as Rig
from tenterhook.rig.runtime.attached_hook import Site as Site
