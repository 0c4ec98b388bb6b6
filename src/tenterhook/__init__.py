"""tenterhook is a hook layer for PyTorch training.

Plans can be read and written without torch. Names that need torch are imported on first use.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from tenterhook.errors import ActionError as ActionError
from tenterhook.errors import AttachedError as AttachedError
from tenterhook.errors import ContractError as ContractError
from tenterhook.errors import DormantError as DormantError
from tenterhook.errors import ExpectError as ExpectError
from tenterhook.errors import HookError as HookError
from tenterhook.errors import InPlaceError as InPlaceError
from tenterhook.errors import MismatchError as MismatchError
from tenterhook.errors import NoMatchError as NoMatchError
from tenterhook.errors import NonFiniteError as NonFiniteError
from tenterhook.errors import PlanError as PlanError
from tenterhook.errors import PlanFileError as PlanFileError
from tenterhook.errors import RanksError as RanksError
from tenterhook.errors import RefusedError as RefusedError
from tenterhook.errors import ResolveError as ResolveError
from tenterhook.errors import ReturnError as ReturnError
from tenterhook.errors import StateError as StateError
from tenterhook.errors import StoreError as StoreError
from tenterhook.errors import TenterhookError as TenterhookError
from tenterhook.errors import UnknownHookError as UnknownHookError
from tenterhook.plan import Action as Action
from tenterhook.plan import Hook as Hook
from tenterhook.plan import Plan as Plan
from tenterhook.plan import When as When

if TYPE_CHECKING:
    from tenterhook.actions import Context as Context
    from tenterhook.actions import Partial as Partial
    from tenterhook.actions import Registry as Registry
    from tenterhook.actions import action as action
    from tenterhook.actions import capture as capture
    from tenterhook.actions import clip_adaptive as clip_adaptive
    from tenterhook.actions import clip_norm as clip_norm
    from tenterhook.actions import clip_value as clip_value
    from tenterhook.actions import clip_zscore as clip_zscore
    from tenterhook.actions import digest as digest
    from tenterhook.actions import histogram as histogram
    from tenterhook.actions import mask as mask
    from tenterhook.actions import nan_to_num as nan_to_num
    from tenterhook.actions import noise as noise
    from tenterhook.actions import ratio as ratio
    from tenterhook.actions import replicas as replicas
    from tenterhook.actions import reverse as reverse
    from tenterhook.actions import scale as scale
    from tenterhook.actions import skew as skew
    from tenterhook.actions import spike as spike
    from tenterhook.actions import stats as stats
    from tenterhook.actions import steer as steer
    from tenterhook.actions import watch_nonfinite as watch_nonfinite
    from tenterhook.actions import weight_digest as weight_digest
    from tenterhook.doctor import Exam as Exam
    from tenterhook.doctor import Finding as Finding
    from tenterhook.doctor import Findings as Findings
    from tenterhook.doctor import examine as examine
    from tenterhook.doctor.check import check as check
    from tenterhook.doctor.effect import effect as effect
    from tenterhook.keep.dcp import DcpState as DcpState
    from tenterhook.keep.restore import restore as restore
    from tenterhook.record.flight import Flight as Flight
    from tenterhook.record.run import Run as Run
    from tenterhook.record.run import open_run as open_run
    from tenterhook.record.run_folder.part import ReadLimits as ReadLimits
    from tenterhook.record.store import Store as Store
    from tenterhook.record.verdict import Verdict as Verdict
    from tenterhook.rig import Handle as Handle
    from tenterhook.rig import Rig as Rig
    from tenterhook.rig import detach as detach
    from tenterhook.rig import find_nonfinite as find_nonfinite
    from tenterhook.rig import hook as hook
    from tenterhook.rig import inventory as inventory
    from tenterhook.rig import tap as tap
    from tenterhook.rig import watch as watch
    from tenterhook.rig.api.attach import attach as attach
    from tenterhook.verdict.flight import flight as flight

__version__ = "0.1.0"

#: names that need torch, grouped by package
_ACTIONS = (
    "Context",
    "Partial",
    "Registry",
    "action",
    "capture",
    "clip_adaptive",
    "clip_norm",
    "clip_value",
    "clip_zscore",
    "digest",
    "histogram",
    "mask",
    "nan_to_num",
    "noise",
    "ratio",
    "replicas",
    "reverse",
    "scale",
    "skew",
    "spike",
    "stats",
    "steer",
    "watch_nonfinite",
    "weight_digest",
)
_RIG = ("Handle", "Rig", "attach", "detach", "find_nonfinite", "hook", "inventory", "tap", "watch")
_KEEP = ("DcpState", "restore")
_RECORD = ("Flight", "ReadLimits", "Run", "Store", "Verdict", "open_run")
_VERDICT = ("flight",)
_DOCTOR = ("Exam", "Finding", "Findings", "check", "effect", "examine")

__all__ = [
    "Action",
    "ActionError",
    "AttachedError",
    "ContractError",
    "DormantError",
    "ExpectError",
    "Hook",
    "HookError",
    "InPlaceError",
    "MismatchError",
    "NoMatchError",
    "NonFiniteError",
    "Plan",
    "PlanError",
    "PlanFileError",
    "RanksError",
    "RefusedError",
    "ResolveError",
    "ReturnError",
    "StateError",
    "StoreError",
    "TenterhookError",
    "UnknownHookError",
    "When",
    *_ACTIONS,
    *_DOCTOR,
    *_KEEP,
    *_RECORD,
    *_RIG,
    *_VERDICT,
]


def __getattr__(name: str) -> Any:
    found = getattr(_package_of(name), name)
    globals()[name] = found
    return found


def _package_of(name: str) -> ModuleType:
    """Import the package that provides a public name."""
    if name in _ACTIONS:
        from tenterhook import actions

        return actions
    if name in _RIG:
        from tenterhook import rig

        return rig
    if name in _KEEP:
        from tenterhook import keep

        return keep
    if name in _RECORD:
        from tenterhook import record

        return record
    if name in _DOCTOR:
        from tenterhook import doctor

        return doctor
    if name in _VERDICT:
        from tenterhook import verdict

        return verdict
    from tenterhook.errors import nearest

    close = [] if name.startswith("_") else nearest(name, __all__)
    near = f"; the nearest {'is' if len(close) == 1 else 'are'} {', '.join(close)}" if close else ""
    raise AttributeError(f"module 'tenterhook' has no attribute {name!r}{near}")


def __dir__() -> list[str]:
    return sorted(__all__)
