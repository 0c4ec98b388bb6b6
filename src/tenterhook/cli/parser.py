"""Define a parser of arguments whose errors name the nearest option or command."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from tenterhook.errors import nearest


class Parser(argparse.ArgumentParser):
    """An argument parser that answers a misspelled word with the nearest one."""

    def error(self, message: str) -> NoReturn:
        """Print the usage, the error and a remedy, and exit with 2."""
        super().error(f"{message}\n  remedy: {self._remedy(message)}")

    def _remedy(self, message: str) -> str:
        choice = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        unknown = re.search(r"unrecognized arguments: (-*)([^\s=]+)", message)
        if choice:
            close = nearest(choice[1], re.findall(r"[\w-]+", choice[2]), 1)
        else:
            # Two dashes at the beginning would make short names similar.
            options = re.findall(r"--([\w-]+)", self.format_help())
            close = [f"--{one}" for one in nearest(unknown[2], options, 1)] if unknown else []
            if unknown and unknown[1] and not close and " script " in self.format_usage():
                return f"write options of the script after it: {self.prog} SCRIPT {unknown[1]}{unknown[2]} ..."
        return f"write {close[0]}" if close else f"`{self.prog} --help` lists the arguments"
