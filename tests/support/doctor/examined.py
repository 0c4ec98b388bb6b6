"""Run each program first without an exam and then under an exam, and print what each rank found.

python -m torch.distributed.run ... -m tests.support.doctor.examined [PROGRAM...]
"""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.tensor.parallel

from tests.support.doctor.programs import Program, programs, run, same


def compare_runs(program: Program) -> dict[str, object]:
    runs = []
    for examined in (False, True):
        dist.barrier()
        runs.append(run(program, examined=examined))
    bare, seen = runs
    return {
        "program": str(program), "rank": int(os.environ["RANK"]), "error": seen.error, "bare": bare.error,
        "same": same(seen.result, bare.result) and (seen.result is None) == (seen.error is not None),
        "found": [[f.code, f.severity, f.place] for f in seen.findings], "text": repr(seen.findings),
    }  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    end = dist.destroy_process_group
    gc.freeze()  # each exam collects garbage twice, and frozen objects are not visited
    # All programs share one group: a second group at the same store would find the addresses of the first.
    dist.init_process_group = dist.destroy_process_group = lambda *args, **kwargs: None
    for program in (*programs("ranks/faulty"), *programs("ranks/healthy")):
        if len(sys.argv) == 1 or str(program) in sys.argv[1:]:
            # A single write keeps the lines of the ranks apart.
            os.write(1, f"result {json.dumps(compare_runs(program))}\n".encode())
    dist.barrier()
    end()
