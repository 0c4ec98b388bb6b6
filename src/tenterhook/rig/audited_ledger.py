"""Give the auditor the data of a rig's ledger."""

from __future__ import annotations

from tenterhook.rig.installer import Installer
from tenterhook.rig.model_sync import ModelSync
from tenterhook.rig.points.taps import Taps
from tenterhook.rig.runtime.attached_hook import AttachedHook


class AuditedLedger:
    """The hooks and sites of a rig, as the auditor reads them."""

    def __init__(self, installer: Installer, taps: Taps, sync: ModelSync) -> None:
        self._installer = installer
        self._taps = taps
        self.structure = sync

    @property
    def hooks(self) -> list[AttachedHook]:
        return list(self._installer.hooks.values())

    @property
    def step(self) -> int:
        return self._installer.environment.clock.step

    @property
    def rig(self) -> int:
        return self._installer.registrations.rig

    @property
    def taps(self) -> list[str]:
        return self._taps.names()
