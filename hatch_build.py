"""Build the user interface of `tenterhook view` into the wheel and the sdist."""

import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class UserInterfaceHook(BuildHookInterface):
    """Runs the build in `ui/`, except for an editable installation and where a build exists (as in an sdist)."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the user interface. `version` is `"editable"` for an editable installation."""
        root = Path(self.root)
        if version == "editable" or (root / "src" / "tenterhook" / "view" / "app" / "index.html").exists():
            return
        for command in (["npm", "ci", "--no-audit", "--no-fund"], ["npm", "run", "build"]):
            subprocess.run(command, cwd=root / "ui", check=True)
