"""Run cases on the simulated device in this process, and print the results as JSON, one in each line.

python -m tests.support.devices               # all cases
python -m tests.support.devices --every 10    # one in ten
python -m tests.support.devices --planted     # hooks that wait on purpose
python -m tests.support.devices --planted item tensor
"""

from __future__ import annotations

import argparse
import json
import warnings
from dataclasses import asdict

from tests.support.devices import cases, forms, planted, simulated


def show(found: object) -> None:
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="run one case in so many")
    parser.add_argument("--planted", nargs="*", metavar="NAME", help="run hooks that wait on purpose")
    given = parser.parse_args()
    warnings.simplefilter("error", RuntimeWarning)
    simulated.register()
    with simulated.OnSimulatedDevice():
        if given.planted is not None:
            show(planted.rules())
            for one in planted.found(given.planted or planted.PLANTED):
                show(one)
        else:
            for action, point in list(cases.cases())[:: given.every]:
                show(asdict(cases.run(action, point, simulated.NAME)))
            for name in forms.FORMS:
                show(asdict(forms.run(name, simulated.NAME)))
