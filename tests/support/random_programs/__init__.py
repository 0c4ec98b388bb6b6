"""Run random programs on hooked models, and compare each one with the same program in plain PyTorch."""

from __future__ import annotations

from tests.support.random_programs.execution import Outcome, execute
from tests.support.random_programs.programs import generate


def run(seed: int, *, compiled: str | None = None) -> Outcome:
    """Run the random program of a seed.

    Args:
        seed: The seed.
        compiled: The backend with which the hooked model is compiled, for example "aot_eager".

    Returns:
        The outcome.
    """
    return execute(generate(seed), compiled)


__all__ = ["Outcome", "run"]
