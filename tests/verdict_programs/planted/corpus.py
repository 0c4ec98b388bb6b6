"""Make the list of planted runs, with the key, from one integer seed: `python corpus.py [SEED]` prints it as JSON.

Each entry has: id, family, kind, half ("open" or "hidden"), fault (the JSON for the environment variable FAULT)
and expected, a list of acceptable verdicts {"code", "step": [first, last] or null, "targets": [...] or null}.
An empty list means that the run is healthy and there must be no verdict.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from pathlib import Path
from typing import Any

from places import PLACES, Place

HERE = Path(__file__).parent
SEED = 1

# Number of updates of each family, for the choice of the step.
UPDATES = {
    "mlp_relu": 160,
    "deep_mlp": 180,
    "cnn_bn": 140,
    "gpt": 160,
    "llama_tiny": 130,
    "mixtral_tiny": 120,
    "vit": 150,
    "rnn": 150,
    "gan": 200,
    "lora": 120,
    "gpt_bf16": 130,
    "gpt_accum": 130,
    "gpt_fp16": 140,
    "cnn_fp16": 140,
    "mixer_fp16": 150,
    "autoencoder_fp16": 160,
}

# The code of each kind of fault.
CODES = {
    "fwd_mask_mean": "TH801",
    "fwd_log": "TH801",
    "fwd_exp": "TH801",
    "attn_masked": "TH801",
    "bwd_sqrt": "TH801",
    "bwd_where": "TH801",
    "data_nan": "TH802",
    "data_inf": "TH802",
    "loss_log": "TH803",
    "loss_empty": "TH803",
    "loss_ignored": "TH803",  # the loss is NaN, but its gradient is zero
    "adam_eps0": "TH804",
    "param_nan": "TH804",
    "lr_nan": "TH805",
    "lr_jump": "TH805",
    "lr_spike": "TH805",
    "lr_high": "TH806",
    "decay_sign": "TH806",
    "w_scale": "TH807",
    "w_reinit": "TH807",
    "batch_scale": "TH808",
    "batch_labels": "TH808",
    "wd_huge": "TH809",
    "grad_shrink": "TH810",
    "sigmoid_stack": "TH810",
    "dead_bias": "TH811",
    "dropout_one": "TH811",
    "detach_block": "TH812",
    "unused_head": "TH812",
    "frozen": "TH813",
    "not_in_opt": "TH813",
    "clip_small": "TH814",
    "lr_zero": "TH815",
    "wrong_model": "TH815",
    "labels_random": "TH815",
    "fp16_overflow": "TH816",
    "fp16_loss": "TH816",
    "opt_state": "TH817",
    "grad_hook": "TH818",
}

# Present from the first step on; the step is scored for those in STEP_ZERO only.
FROM_START = {
    "lr_high",
    "decay_sign",
    "wd_huge",
    "grad_shrink",
    "sigmoid_stack",
    "dead_bias",
    "unused_head",
    "frozen",
    "not_in_opt",
    "clip_small",
    "lr_zero",
    "wrong_model",
    "labels_random",
}
STEP_ZERO = {"dead_bias", "unused_head"}


def expected(kind: str, family: str, step: int | None, targets: list[str] | None) -> list[dict[str, Any]]:
    """Return the acceptable verdicts of one run."""
    when = None if step is None else [step, step]
    first = {"code": CODES[kind], "step": when, "targets": targets}
    result = [first]
    if kind == "param_nan":
        # The weights are overwritten between two updates: both neighbours are a fair answer.
        first["step"] = [step - 1, step]
    if kind == "lr_nan":
        # An infinite learning rate is a jump, and it is the optimizer that makes all parameters non-finite.
        result.append({"code": "TH804", "step": when, "targets": None})
    if kind == "loss_ignored" and family == "mixtral_tiny":
        # The model computes its own loss: the operation runs in the root module, and it is the loss.
        result.insert(0, {"code": "TH801", "step": when, "targets": [""]})
    if kind == "fp16_overflow":
        # The scaler skips step after step because one module overflows: both sentences are true.
        first["targets"] = [""]
        result.append({"code": "TH801", "step": when, "targets": targets})
    if kind == "wrong_model":
        # The parameters of the optimizer (those of a copy) never receive a gradient, so the loss does not fall.
        result.append({"code": "TH812", "step": None, "targets": None})
    return result


def choose(seed: int, kind: str, family: str, places: list[Place]) -> dict[str, Any]:
    """Return one run, with random step and layer."""
    name = f"{kind}-{family}"
    rng = random.Random(f"{seed} {name}")
    total = UPDATES[family]
    low, high = (0.3, 0.45) if kind.startswith("fp16") else (0.5, 0.75)
    step: int | None = rng.randrange(int(total * low), int(total * high))
    layer, targets = rng.choice(places)
    script_seed = rng.randrange(1000)
    if kind in FROM_START:
        step = 0 if kind in STEP_ZERO else None
    return {
        "id": name,
        "family": family,
        "kind": kind,
        "fault": {"kind": kind, "step": step or 0, "layer": layer, "seed": script_seed},
        "expected": expected(kind, family, step, targets),
    }


def make(seed: int = SEED) -> list[dict[str, Any]]:
    """Return all entries."""
    entries = [choose(seed, kind, family, places) for kind, row in PLACES.items() for family, places in row.items()]
    for family in UPDATES:
        fault = {"kind": "", "step": 0, "layer": "", "seed": 100 + seed}
        entries.append({"id": f"healthy-{family}", "family": family, "kind": "healthy", "fault": fault, "expected": []})
    for entry in entries:
        digest = hashlib.sha256(f"{seed} {entry['id']}".encode()).digest()
        entry["half"] = "open" if digest[0] % 2 == 0 else "hidden"
    return entries


def script(entry: dict[str, Any]) -> Path:
    """Return the script of an entry."""
    return HERE / "families" / f"{entry['family']}.py"


if __name__ == "__main__":
    print(json.dumps(make(int(sys.argv[1]) if len(sys.argv) > 1 else SEED), indent=1))
