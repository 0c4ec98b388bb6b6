"""The pytest fixture `hook_doctor` fails tests whose hooks are wrong."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]


def test_the_fixture(pytester: pytest.Pytester):
    pytester.makepyfile(
        """
        import torch

        def test_right(hook_doctor):
            x = torch.ones(2, requires_grad=True)
            x.register_hook(lambda grad: grad * 2)
            x.sum().backward()
            assert len(hook_doctor.hooks) == 1

        def test_wrong(hook_doctor):
            x = torch.ones(2, requires_grad=True)
            x.sum().backward()
            x.register_hook(lambda grad: grad * 2)
        """
    )
    done = pytester.runpytest_inprocess("-p", "no:xdist", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=2, errors=1)
    done.stdout.fnmatch_lines(
        ["*TH201 error: the hook was registered after the forward or backward pass that should have called it*"]
    )


def test_the_plugin_alone_does_not_import_torch():
    code = "import sys, tenterhook.adapters.pytest_plugin; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
