"""Collect the mutants of the source that `scripts/mutants` runs. Each breaks a promise that a test must notice."""

from __future__ import annotations

from tests.support.ranks import mutants_of_ranks
from tests.support.record import mutants_of_folders, mutants_of_reading, mutants_of_recording
from tests.support.record.mutant import Mutant as Mutant
from tests.support.verdict import mutants_of_verdicts

MUTANTS: list[Mutant] = [
    *mutants_of_folders.MUTANTS,
    *mutants_of_recording.MUTANTS,
    *mutants_of_reading.MUTANTS,
    *mutants_of_verdicts.MUTANTS,
    *mutants_of_ranks.MUTANTS,
]
