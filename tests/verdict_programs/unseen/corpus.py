"""Make the second list of planted runs, with the key, from one integer seed: `python corpus.py [SEED]`.

The fields are those of the first corpus: id, family, kind, half, fault, expected.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

HERE = Path(__file__).parent
SEED = 1

UPDATES = {
    "unet": 112,
    "seq2seq": 125,
    "vae": 180,
    "gat": 140,
    "bert_mlm": 112,
    "siamese_fp16": 150,
    "dqn": 190,
    "two_tower": 150,
    "tcn_accum": 112,
    "resnet_gn": 112,
    "tabular": 200,
    "diffusion": 150,
    "lstm_tagger": 140,
    "gated_bf16": 120,
    "denoise_fp16": 160,
    "sets_fp16": 150,
}

CODES = {
    "fwd_log": "TH801",
    "fwd_div": "TH801",
    "fwd_exp": "TH801",
    "attn_masked": "TH801",
    "bwd_sqrt": "TH801",
    "bwd_where": "TH801",
    "data_nan": "TH802",
    "data_inf": "TH802",
    "loss_log": "TH803",
    "loss_div": "TH803",
    "loss_ignored": "TH803",
    "adam_eps0": "TH804",
    "state_neg": "TH804",
    "lr_nan": "TH804",
    "param_nan": "TH804",
    "lr_jump": "TH805",
    "lr_spike": "TH805",
    "lr_high": "TH806",
    "maximize": "TH806",
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
FROM_START = {
    "lr_high",
    "maximize",
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


def same(*names):
    """Return places in modules of which only the module itself is right."""
    return [(n, [n]) for n in names]


def par(*names):
    """Return places in parameters of which the parameter or its module is right."""
    return [(n, [n, n.rsplit(".", 1)[0]]) for n in names]


def below(*names):
    """Return places in modules of which the module or anything in it is right."""
    return [(n, [n, n + ".*"]) for n in names]


def nums(text, *numbers):
    return [text.format(i) for i in numbers]


ROOT, ANY = [("", [""])], [("", None)]
BERT = "bert.encoder.layer.{}"
UNET = ["down1", "down2", "mid", "up2", "up1"]
RES = ["layer1.0", "layer1.1", "layer2.0", "layer2.1"]
FF = [(f"encoder.{i}.ff", [f"encoder.{i}.ff*", f"encoder.{i}.n2*"]) for i in range(3)]
FF += [(f"decoder.{i}.ff", [f"decoder.{i}.ff*", f"decoder.{i}.n3*"]) for i in range(2)]
SEQ_W = par(
    *nums("encoder.{}.ff.down.weight", 0, 1, 2),
    *nums("decoder.{}.cross.proj.weight", 0, 1),
    *nums("encoder.{}.attn.value.weight", 0, 1, 2),
)

PLACES = {
    "fwd_log": {
        "vae": same("enc.0", "enc.1", "enc.2", "dec.0", "dec.1"),
        "tcn_accum": same(*nums("blocks.{}", *range(5))),
        "tabular": same(*nums("units.{}", *range(5))),
    },
    "fwd_div": {
        "unet": same(*UNET),
        "gat": same(*nums("gat.{}", *range(4))),
        "diffusion": same(*nums("blocks.{}", *range(4))),
        "dqn": same(*nums("layers.{}", *range(5))),
    },
    "fwd_exp": {
        "resnet_gn": same(*RES),
        "dqn": same(*nums("layers.{}", *range(5))),
        "diffusion": same(*nums("blocks.{}", *range(4))),
        "gated_bf16": same(*nums("stack.{}", *range(4))),
    },
    "attn_masked": {
        "seq2seq": same(
            *nums("encoder.{}.attn", 0, 1, 2), *nums("decoder.{}.attn", 0, 1), *nums("decoder.{}.cross", 0, 1)
        ),
        "gat": same(*nums("gat.{}", *range(4))),
        "gated_bf16": same("pool_a", "pool_b"),
    },
    "bwd_sqrt": {
        "unet": same(*UNET),
        "vae": same("enc.0", "enc.1", "enc.2", "dec.0", "dec.1"),
        "bert_mlm": same(*nums(BERT + ".intermediate", 0, 1, 2), *nums(BERT + ".output.dense", 0, 1, 2)),
        "tcn_accum": same(*nums("blocks.{}", *range(5))),
    },
    "bwd_where": {
        "tabular": same(*nums("units.{}", *range(5))),
        "resnet_gn": same(*RES),
        "two_tower": same("user_mlp.0", "user_mlp.1", "item_mlp.0", "item_mlp.1"),
    },
    "data_nan": {
        "unet": [("", ["image"])],
        "tcn_accum": [("", ["series"])],
        "tabular": [("", ["numbers"])],
        "diffusion": [("", ["noisy"])],
    },
    "data_inf": {"resnet_gn": [("", ["pictures"])], "vae": [("", ["batch"])], "dqn": [("", ["state"])]},
    "loss_log": dict.fromkeys(("unet", "two_tower", "tabular"), ROOT),
    "loss_div": dict.fromkeys(("seq2seq", "lstm_tagger", "tcn_accum"), ROOT),
    "loss_ignored": dict.fromkeys(("seq2seq", "lstm_tagger", "bert_mlm"), ROOT),
    "adam_eps0": {
        "seq2seq": [("", ["embed.weight", "embed"])],
        "two_tower": [("", ["user_emb.weight", "user_emb", "item_emb.weight", "item_emb", "user_mlp.*", "item_mlp.*"])],
        "lstm_tagger": [("", ["words.weight", "words"])],
        "bert_mlm": [("", ["bert.embeddings.word_embeddings.weight", "bert.embeddings.word_embeddings"])],
    },
    "state_neg": {
        "vae": par("enc.0.fc.weight", "enc.1.fc.weight", "dec.1.fc.weight", "mu.weight", "pixels.weight"),
        "diffusion": par(
            "inp.weight", *nums("blocks.{}.fc1.weight", 0, 1, 2, 3), *nums("blocks.{}.fc2.weight", 0, 1, 2, 3)
        ),
        "gated_bf16": par(
            *nums("stack.{}.signal.weight", 0, 1, 2, 3), *nums("stack.{}.proj.weight", 0, 1, 2, 3), "front.weight"
        ),
        "gat": par(*nums("gat.{}.lin.weight", 0, 1, 2, 3)),
    },
    "lr_nan": dict.fromkeys(("bert_mlm", "unet", "tcn_accum"), ANY),
    "param_nan": {
        "resnet_gn": par(*[r + ".conv1.weight" for r in RES], "fc.weight"),
        "tabular": par(*nums("units.{}.dense.weight", 0, 1, 2, 3, 4)),
        "dqn": par(*nums("layers.{}.weight", 0, 1, 2, 3, 4)),
        "lstm_tagger": par("lstm_a.weight_ih_l0", "lstm_b.weight_hh_l0", "tag.weight"),
    },
    "lr_jump": dict.fromkeys(("resnet_gn", "seq2seq", "two_tower", "lstm_tagger", "diffusion", "siamese_fp16"), ROOT),
    "lr_spike": dict.fromkeys(("vae", "unet", "tcn_accum", "gated_bf16", "dqn"), ROOT),
    "lr_high": dict.fromkeys(("vae", "tcn_accum", "two_tower"), ROOT),
    "maximize": dict.fromkeys(("two_tower", "tabular", "lstm_tagger"), ROOT),
    "decay_sign": dict.fromkeys(("unet", "seq2seq", "resnet_gn", "gat"), ROOT),
    "w_scale": {
        "seq2seq": SEQ_W,
        "diffusion": par(*nums("blocks.{}.fc1.weight", 0, 1, 2, 3), *nums("blocks.{}.fc2.weight", 0, 1, 2, 3)),
        "denoise_fp16": par(*nums("parts.{}.reduce.weight", 0, 1, 2, 3)),
        "two_tower": par("user_mlp.0.lin.weight", "user_mlp.1.lin.weight", "item_mlp.0.lin.weight", "item_out.weight"),
        "gat": par("inp.weight", "cls.weight"),
        "siamese_fp16": par(*nums("tower.trunk.{}.b.weight", 0, 1, 2, 3)),
    },
    "w_reinit": {
        "resnet_gn": par("stem.weight", "layer2.0.short.weight", "fc.weight"),
        "unet": par("up1.conv2.weight", "out.weight", "up1.conv1.weight"),
        "bert_mlm": par("cls.predictions.decoder.weight", "cls.predictions.transform.dense.weight"),
        "lstm_tagger": par("lstm_a.weight_ih_l0", "lstm_b.weight_ih_l0", "lstm_b.weight_hh_l0_reverse", "tag.weight"),
    },
    "batch_scale": dict.fromkeys(("tabular", "unet", "tcn_accum", "vae"), ROOT),
    "batch_labels": dict.fromkeys(
        (
            "seq2seq",
            "resnet_gn",
            "lstm_tagger",
            "gated_bf16",
            "sets_fp16",
            "two_tower",
            "gat",
            "dqn",
            "siamese_fp16",
            "bert_mlm",
        ),
        ROOT,
    ),
    "wd_huge": dict.fromkeys(("bert_mlm", "vae", "two_tower", "diffusion"), ROOT),
    "grad_shrink": {
        "bert_mlm": [(BERT.format(i), [BERT.format(i) + ".*", BERT.format(i - 1) + ".*"]) for i in (1, 2)],
        "diffusion": [(f"blocks.{i}", [f"blocks.{i}.*", f"blocks.{i - 1}.*"]) for i in (1, 2, 3)],
        "resnet_gn": [(RES[i], [RES[i] + ".*", RES[i - 1] + ".*"]) for i in (1, 2, 3)],
        "gat": [(f"gat.{i}", [f"gat.{i}.*", f"gat.{i - 1}.*"]) for i in (1, 2, 3)],
    },
    "sigmoid_stack": dict.fromkeys(("tabular", "dqn", "tcn_accum"), ANY),
    "dead_bias": {
        "vae": below("enc.1", "enc.2", "dec.0", "dec.1"),
        "tabular": below(*nums("units.{}", 1, 2, 3, 4)),
        "dqn": below(*nums("layers.{}", 1, 2, 3, 4)),
        "two_tower": below("user_mlp.1", "item_mlp.1"),
    },
    "dropout_one": {
        "seq2seq": FF,
        "gat": below(*nums("gat.{}", *range(4))),
        "gated_bf16": below(*nums("stack.{}", *range(4))),
    },
    "detach_block": {
        "seq2seq": FF,
        "bert_mlm": [(BERT.format(i), [BERT.format(i) + ".attention.self*"]) for i in range(3)],
        "diffusion": below(*nums("blocks.{}", *range(4))),
        "tcn_accum": below(*nums("blocks.{}", *range(5))),
        "sets_fp16": below(*nums("layers.{}", *range(4))),
    },
    "unused_head": {
        "unet": [("", ["boundary*"])],
        "vae": [("", ["classifier*"])],
        "gat": [("", ["edge_score*"])],
        "gated_bf16": [("", ["loudness*"])],
    },
    "frozen": {
        "resnet_gn": below(*RES),
        "seq2seq": below(*nums("encoder.{}", 0, 1, 2), *nums("encoder.{}.ff", 0, 1, 2)),
        "bert_mlm": below(*nums(BERT, 0, 1, 2)),
        "denoise_fp16": below(*nums("parts.{}", *range(4))),
    },
    "not_in_opt": {
        "tcn_accum": below(*nums("blocks.{}", *range(5))),
        "diffusion": below(*nums("blocks.{}", *range(4))),
        "sets_fp16": below(*nums("layers.{}", *range(4))),
        "gat": below(*nums("gat.{}", *range(4))),
        "siamese_fp16": below(*nums("tower.trunk.{}", *range(4))),
    },
    "clip_small": dict.fromkeys(("lstm_tagger", "seq2seq", "resnet_gn", "bert_mlm"), ROOT),
    "lr_zero": dict.fromkeys(("two_tower", "gat", "unet", "denoise_fp16"), ROOT),
    "wrong_model": dict.fromkeys(("diffusion", "tabular", "lstm_tagger"), ROOT),
    "labels_random": dict.fromkeys(("resnet_gn", "gated_bf16", "lstm_tagger", "sets_fp16"), ROOT),
    "fp16_overflow": {
        "siamese_fp16": same(*nums("tower.trunk.{}", *range(4))),
        "denoise_fp16": same(*nums("parts.{}", *range(4))),
        "sets_fp16": same(*nums("layers.{}", *range(4))),
    },
    "fp16_loss": dict.fromkeys(("siamese_fp16", "denoise_fp16", "sets_fp16"), ROOT),
    "opt_state": dict.fromkeys(("unet", "bert_mlm", "diffusion", "two_tower", "gated_bf16", "denoise_fp16"), ROOT),
    "grad_hook": {
        "resnet_gn": below(*RES),
        "vae": [(n, [n, n + ".fc", n + ".fc.weight"]) for n in ("enc.0", "enc.1", "enc.2", "dec.0", "dec.1")],
        "seq2seq": SEQ_W,
        "dqn": par(*nums("layers.{}.weight", 0, 1, 2, 3, 4)),
        "tcn_accum": par(*nums("blocks.{}.conv.weight", *range(5)), *nums("blocks.{}.mix.weight", *range(5))),
        "denoise_fp16": par(*nums("parts.{}.expand.weight", *range(4))),
    },
}


# Left out to keep the corpus small (the scripts can plant them).
LEFT_OUT = {
    "bwd_sqrt": ["unet"],
    "data_nan": ["tcn_accum"],
    "adam_eps0": ["bert_mlm"],
    "state_neg": ["gated_bf16"],
    "param_nan": ["lstm_tagger"],
    "lr_jump": ["lstm_tagger", "diffusion"],
    "lr_spike": ["unet"],
    "decay_sign": ["unet"],
    "w_scale": ["siamese_fp16"],
    "batch_scale": ["unet"],
    "batch_labels": ["seq2seq", "gat", "siamese_fp16", "bert_mlm"],
    "wd_huge": ["bert_mlm"],
    "detach_block": ["bert_mlm"],
    "unused_head": ["unet"],
    "frozen": ["seq2seq"],
    "not_in_opt": ["tcn_accum"],
    "clip_small": ["seq2seq"],
    "lr_zero": ["unet"],
    "labels_random": ["resnet_gn"],
    "opt_state": ["unet", "bert_mlm"],
    "grad_hook": ["seq2seq"],
}
for _kind, _families in LEFT_OUT.items():
    for _family in _families:
        del PLACES[_kind][_family]


def expected(kind, family, step, targets):
    """Return the acceptable verdicts of one run."""
    when = None if step is None else [step, step]
    first = {"code": CODES[kind], "step": when, "targets": targets}
    result = [first]
    if kind == "param_nan":
        # Other code overwrote the weights of one layer between two updates.
        first["step"] = [step - 1, step]
        result.append({"code": "TH807", "step": [step - 1, step], "targets": targets})
    if kind == "loss_ignored" and family == "bert_mlm":
        # The model computes the loss itself, in the forward of the root module.
        result.append({"code": "TH801", "step": when, "targets": [""]})
    if kind == "fp16_overflow":
        first["targets"] = [""]
        result.append({"code": "TH801", "step": when, "targets": targets})
    if kind == "wrong_model":
        result.append({"code": "TH812", "step": None, "targets": None})
    return result


def choose(seed, kind, family, places):
    """Return one run, with random step and layer."""
    name = f"{kind}-{family}"
    rng = random.Random(f"second {seed} {name}")
    low, high = (0.28, 0.45) if kind.startswith("fp16") else (0.42, 0.8)
    step = rng.randrange(int(UPDATES[family] * low), int(UPDATES[family] * high))
    layer, targets = rng.choice(places)
    script_seed = rng.randrange(10000)
    if kind in FROM_START:
        step = 0 if kind in STEP_ZERO else None
    return {
        "id": name,
        "family": family,
        "kind": kind,
        "half": "open",
        "fault": {"kind": kind, "step": step or 0, "layer": layer, "seed": script_seed},
        "expected": expected(kind, family, step, targets),
    }


def make(seed=SEED):
    """Return all entries."""
    entries = [choose(seed, kind, family, places) for kind, row in PLACES.items() for family, places in row.items()]
    for family in UPDATES:
        fault = {"kind": "", "step": 0, "layer": "", "seed": 500 + seed}
        entries.append(
            {
                "id": f"healthy-{family}",
                "family": family,
                "kind": "healthy",
                "half": "open",
                "fault": fault,
                "expected": [],
            }
        )
    return entries


def script(entry):
    """Return the script of an entry."""
    return HERE / "families" / f"{entry['family']}.py"


if __name__ == "__main__":
    print(json.dumps(make(int(sys.argv[1]) if len(sys.argv) > 1 else SEED), indent=1))
