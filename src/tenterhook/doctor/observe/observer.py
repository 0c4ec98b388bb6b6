"""Define the generators that observe calls."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

#: a generator that observes one call; it receives the value that the call returned, or a FailedCallError
Observer = Generator[None, Any, Any]


class FailedCallError(Exception):
    """Tells an observer that the call raised an error, with the text of the error."""
