"""Define what a mutant of the source is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3] / "src" / "tenterhook"


@dataclass(frozen=True)
class Mutant:
    """A change of one file that breaks a promise, and the tests that must notice it.

    `text` occurs exactly once in the file, which is a path under `src/tenterhook`. `tests` are arguments of pytest.
    """

    name: str
    file: str
    text: str
    new: str
    tests: tuple[str, ...]
    #: what is broken
    broken: str

    @property
    def package(self) -> str:
        return self.file.partition("/")[0]

    def occurrences(self, source: Path = SOURCE) -> int:
        """Return how often the text occurs in the file."""
        return (source / self.file).read_text(encoding="utf-8").count(self.text)

    def applied(self, source: Path = SOURCE) -> str:
        """Return the content of the file with the change."""
        assert self.occurrences(source) == 1
        return (source / self.file).read_text(encoding="utf-8").replace(self.text, self.new)
