"""Explain why a hook did not fire or had no effect, for a rig's hooks and for raw PyTorch hooks."""

from __future__ import annotations

from tenterhook.doctor.check import check as check
from tenterhook.doctor.effect import Effect as Effect
from tenterhook.doctor.effect import effect as effect
from tenterhook.doctor.exam import Exam as Exam
from tenterhook.doctor.exam import examine as examine
from tenterhook.doctor.findings import CODES as CODES
from tenterhook.doctor.findings import Finding as Finding
from tenterhook.doctor.findings import Findings as Findings
