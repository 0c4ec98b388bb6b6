"""Define which fault can be planted in which family, and at which layers.

PLACES[kind][family] is a list of (layer, targets): the layer for the fault description and the names that a
diagnosis may give. A target that ends with * stands for all names with this beginning. None means: not scored.
"""

from __future__ import annotations

Place = tuple[str, list[str] | None]
LLAMA = "model.layers.{i}"
PEFT = "base_model.model.model.layers.{i}"


def each(numbers: range, layer: str, *targets: str) -> list[Place]:
    """Return one place for each number; {i} is the number, {b} the number before."""
    return [(layer.format(i=i, b=i - 1), [t.format(i=i, b=i - 1) for t in targets or (layer,)]) for i in numbers]


def weight(numbers: range, *layers: str) -> list[Place]:
    """Return places where the layer is a parameter: the parameter itself or its module is right."""
    return [p for name in layers for p in each(numbers, name, name, name.rsplit(".", 1)[0])]


def own_weight(numbers: range, *modules: str) -> list[Place]:
    """Return places where the layer is a module: its parameter `weight` or the module itself is right."""
    return [p for name in modules for p in each(numbers, name, name + ".weight", name)]


ROOT: list[Place] = [("", [""])]
ANY: list[Place] = [("", None)]
STAGES = ("stem", "stage1.0", "stage1.1", "stage2.0", "stage2.1")
CNN = [(s, [s]) for s in STAGES]
CNN_CONV = [(s, [f"{s}.conv.weight", f"{s}.conv"]) for s in STAGES]
CNN_MIDDLE = [(s, [f"{s}*"]) for s in STAGES[1:]]
GPT_WEIGHTS = own_weight(
    range(4), "blocks.{i}.attn.qkv", "blocks.{i}.attn.out", "blocks.{i}.mlp.up", "blocks.{i}.mlp.down"
)
GPT_GRAD = [(name, [name, name + ".weight", name + ".bias"]) for name, _ in GPT_WEIGHTS]
LLAMA_WEIGHTS = weight(range(4), LLAMA + ".mlp.down_proj.weight", LLAMA + ".self_attn.o_proj.weight")
LORA_B = weight(
    range(3), PEFT + ".mlp.down_proj.lora_B.default.weight", PEFT + ".self_attn.v_proj.lora_B.default.weight"
)
ADAM_ROOT = ("gpt", "deep_mlp", "vit", "llama_tiny", "rnn", "lora", "mixer_fp16", "mlp_relu", "cnn_bn", "cnn_fp16")

PLACES: dict[str, dict[str, list[Place]]] = {
    "fwd_mask_mean": {
        "gpt": each(range(4), "blocks.{i}.mlp"),
        "rnn": each(range(3), "rnn{i}"),
        "vit": each(range(4), "encoder.{i}.feed_forward"),
        "mixtral_tiny": each(range(3), LLAMA + ".self_attn.o_proj") + each(range(3), LLAMA + ".input_layernorm"),
        "cnn_bn": CNN,
    },
    "fwd_log": {
        "mlp_relu": each(range(6), "hidden.{i}"),
        "deep_mlp": [*each(range(8), "layers.{i}"), ("", [""])],
        "gpt_accum": each(range(3), "layers.{i}.ffn"),
        "cnn_bn": CNN,
    },
    "fwd_exp": {
        "mlp_relu": each(range(6), "hidden.{i}"),
        "deep_mlp": each(range(8), "layers.{i}"),
        "llama_tiny": each(range(4), LLAMA + ".mlp.up_proj") + each(range(4), LLAMA + ".self_attn.v_proj"),
        "gan": [("first", ["first"]), ("second", ["second"])],
        "vit": each(range(4), "encoder.{i}.attention"),
    },
    "attn_masked": {
        "gpt": each(range(4), "blocks.{i}.attn"),
        "gpt_bf16": each(range(4), "transformer.h.{i}.attn"),
        "gpt_accum": each(range(3), "layers.{i}.attention"),
        "vit": each(range(4), "encoder.{i}.attention"),
    },
    "bwd_sqrt": {
        "gpt": each(range(4), "blocks.{i}.mlp"),
        "cnn_bn": CNN,
        "llama_tiny": each(range(4), LLAMA + ".mlp.down_proj") + each(range(4), LLAMA + ".self_attn.o_proj"),
        "lora": each(range(3), PEFT + ".mlp"),
        "deep_mlp": each(range(8), "layers.{i}"),
    },
    "bwd_where": {
        "mlp_relu": each(range(1, 6), "hidden.{i}"),
        "rnn": each(range(3), "rnn{i}"),
        "gpt_bf16": each(range(4), "transformer.h.{i}.mlp"),
        "gan": [("second", ["second"])],
    },
    "data_nan": {
        "mlp_relu": [("", ["x"])],
        "cnn_bn": [("", ["images"])],
        "vit": [("", ["img"])],
        "rnn": [("", ["seq"])],
        "gan": [("", ["points"])],
    },
    "data_inf": {
        "mlp_relu": [("", ["x"])],
        "deep_mlp": [("", ["points"])],
        "vit": [("", ["img"])],
        "rnn": [("", ["seq"])],
        "gan": [("", ["points"])],
    },
    "loss_log": dict.fromkeys(("mlp_relu", "cnn_bn", "vit", "gan"), ROOT),
    "loss_empty": dict.fromkeys(("gpt", "gpt_bf16", "llama_tiny", "gpt_accum"), ROOT),
    "loss_ignored": dict.fromkeys(("gpt", "gpt_bf16", "llama_tiny", "mixtral_tiny", "gpt_accum"), ROOT),
    "adam_eps0": {
        "gpt": [("", ["tokens.weight", "tokens"])],
        "llama_tiny": [("", ["model.embed_tokens.weight", "model.embed_tokens"])],
        "mixtral_tiny": [("", ["model.embed_tokens.weight", "model.embed_tokens"])],
        "gpt_accum": [("", ["embedding.weight", "embedding"])],
    },
    "param_nan": {
        "mlp_relu": each(range(6), "hidden.{i}", "hidden.{i}.linear.weight", "hidden.{i}.linear"),
        "cnn_bn": CNN_CONV,
        "llama_tiny": LLAMA_WEIGHTS,
        "lora": LORA_B,
        "gan": own_weight(range(1, 4), "fc{i}"),
    },
    "lr_nan": dict.fromkeys(("gpt", "vit", "mixtral_tiny", "deep_mlp"), ROOT),
    "lr_jump": dict.fromkeys(
        ("mlp_relu", "cnn_bn", "gpt", "rnn", "llama_tiny", "lora", "cnn_fp16", "autoencoder_fp16", "gan"), ROOT
    ),
    "lr_spike": dict.fromkeys(("deep_mlp", "vit", "gpt_bf16", "cnn_bn", "mixtral_tiny"), ROOT),
    "lr_high": dict.fromkeys(("mlp_relu", "deep_mlp", "rnn", "mixtral_tiny", "gpt_accum"), ROOT),
    "decay_sign": dict.fromkeys(("mlp_relu", "cnn_bn", "gpt", "vit"), ROOT),
    "w_scale": {
        "gpt": GPT_WEIGHTS,
        "deep_mlp": own_weight(range(8), "layers.{i}"),
        "lora": LORA_B,
        "mixtral_tiny": weight(range(3), LLAMA + ".self_attn.o_proj.weight", LLAMA + ".mlp.experts.down_proj"),
        "gan": own_weight(range(1, 4), "fc{i}"),
        "gpt_fp16": weight(range(3), "feed.{i}.wide.weight", "feed.{i}.narrow.weight", "attend.{i}.proj.weight"),
        "mixer_fp16": weight(range(3), "mixers.{i}.channel_in.weight", "mixers.{i}.channel_out.weight"),
        "autoencoder_fp16": weight(range(2), "encoder.{i}.lin.weight", "decoder.{i}.lin.weight"),
    },
    "w_reinit": {
        "cnn_bn": [*[(f"{s}.conv.weight", t) for s, t in CNN_CONV], ("fc.weight", ["fc.weight", "fc"])],
        "rnn": weight(range(3), "rnn{i}.mix.weight", "rnn{i}.cell.weight_ih_l0"),
        "llama_tiny": LLAMA_WEIGHTS,
        "gpt_accum": weight(range(3), "layers.{i}.attention.wo.weight", "layers.{i}.ffn.w2.weight"),
        "vit": weight(range(4), "encoder.{i}.feed_forward.net.0.weight", "encoder.{i}.attention.proj.weight"),
    },
    "batch_scale": dict.fromkeys(("mlp_relu", "cnn_bn", "rnn", "deep_mlp", "mixer_fp16"), ROOT),
    "batch_labels": dict.fromkeys(
        (
            "mlp_relu",
            "cnn_bn",
            "gpt",
            "rnn",
            "vit",
            "gpt_bf16",
            "deep_mlp",
            "llama_tiny",
            "gpt_accum",
            "lora",
            "gpt_fp16",
            "mixtral_tiny",
        ),
        ROOT,
    ),
    "wd_huge": dict.fromkeys(("gpt", "mlp_relu", "vit", "llama_tiny", "autoencoder_fp16", "lora"), ROOT),
    "grad_shrink": {
        "gpt": each(range(1, 4), "blocks.{i}", "blocks.{b}.*"),
        "vit": each(range(1, 4), "encoder.{i}", "encoder.{b}.*"),
        "llama_tiny": each(range(1, 4), LLAMA, "model.layers.{b}.*"),
        "gpt_accum": each(range(1, 3), "layers.{i}", "layers.{b}.*"),
    },
    "sigmoid_stack": dict.fromkeys(("mlp_relu", "deep_mlp", "autoencoder_fp16", "cnn_bn"), ANY),
    "dead_bias": {
        "mlp_relu": each(range(1, 6), "hidden.{i}", "hidden.{i}", "hidden.{i}.*"),
        "cnn_bn": CNN_MIDDLE,
        "gan": each(range(1, 3), "fc{i}", "fc{i}", "fc{i}.*"),
        "autoencoder_fp16": each(range(1, 3), "encoder.{i}", "encoder.{i}", "encoder.{i}.*"),
    },
    "dropout_one": {
        "gpt": each(range(4), "blocks.{i}.mlp", "blocks.{i}.mlp*", "blocks.{i}.ln2*"),
        "vit": each(range(4), "encoder.{i}.feed_forward", "encoder.{i}.feed_forward*", "encoder.{i}.norm_b*"),
        "gpt_bf16": each(range(4), "transformer.h.{i}.mlp", "transformer.h.{i}.mlp*", "transformer.h.{i}.ln_2*"),
        "rnn": each(range(3), "rnn{i}", "rnn{i}*"),
        "mixer_fp16": each(range(3), "mixers.{i}", "mixers.{i}.channel*", "mixers.{i}.norm_c*"),
    },
    "detach_block": {
        "gpt_accum": each(range(3), "layers.{i}.ffn", "layers.{i}.ffn*"),
        "mixtral_tiny": each(range(3), LLAMA + ".mlp", LLAMA + ".mlp*", LLAMA + ".post_attention_layernorm*"),
        "vit": each(range(4), "encoder.{i}.feed_forward", "encoder.{i}.feed_forward*", "encoder.{i}.norm_b*"),
        "lora": each(range(3), PEFT + ".mlp", PEFT + ".mlp*"),
        "gpt_fp16": [(f"feed.{i}", [f"feed.{i}*", f"norms.{2 * i + 1}*"]) for i in range(3)],
        "cnn_fp16": each(range(4), "body.{i}", "body.{i}*"),
    },
    "unused_head": {
        "deep_mlp": [("", ["auxiliary*"])],
        "cnn_bn": [("", ["aux_fc*"])],
        "rnn": [("", ["confidence*"])],
        "gpt_bf16": [("", ["value_head*"])],
    },
    "frozen": {
        "gpt": each(range(4), "blocks.{i}", "blocks.{i}*"),
        "deep_mlp": each(range(8), "layers.{i}", "layers.{i}*"),
        "llama_tiny": each(range(4), LLAMA, LLAMA + "*"),
        "lora": each(range(3), PEFT, PEFT + "*"),
        "gpt_fp16": each(range(3), "feed.{i}", "feed.{i}*") + each(range(3), "attend.{i}", "attend.{i}*"),
        "mixer_fp16": each(range(3), "mixers.{i}", "mixers.{i}*"),
    },
    "not_in_opt": {
        "vit": each(range(4), "encoder.{i}", "encoder.{i}*"),
        "mixtral_tiny": each(range(3), LLAMA, LLAMA + "*"),
        "gpt_accum": each(range(3), "layers.{i}", "layers.{i}*"),
        "cnn_bn": CNN_MIDDLE,
        "rnn": each(range(3), "rnn{i}", "rnn{i}*"),
        "cnn_fp16": each(range(4), "body.{i}", "body.{i}*"),
    },
    "clip_small": dict.fromkeys(("gpt", "llama_tiny", "rnn", "cnn_bn", "mixtral_tiny"), ROOT),
    "lr_zero": dict.fromkeys(("mlp_relu", "gpt_bf16", "lora", "mixtral_tiny"), ROOT),
    "wrong_model": dict.fromkeys(("cnn_bn", "gpt", "vit", "rnn"), ROOT),
    "labels_random": dict.fromkeys(("cnn_bn", "rnn", "gpt_accum", "vit"), ROOT),
    "fp16_overflow": {
        "gpt_fp16": each(range(3), "attend.{i}") + each(range(3), "feed.{i}"),
        "cnn_fp16": each(range(4), "body.{i}"),
        "mixer_fp16": each(range(3), "mixers.{i}"),
        "autoencoder_fp16": each(range(3), "encoder.{i}", "encoder.{i}", "encoder.{i}.lin"),
    },
    "fp16_loss": dict.fromkeys(("gpt_fp16", "cnn_fp16", "mixer_fp16", "autoencoder_fp16"), ROOT),
    "opt_state": dict.fromkeys(ADAM_ROOT, ROOT),
    "grad_hook": {
        "gpt": GPT_GRAD,
        "deep_mlp": own_weight(range(8), "layers.{i}"),
        "cnn_bn": [(s, [s, *t]) for s, t in CNN_CONV],
        "llama_tiny": LLAMA_WEIGHTS,
        "mlp_relu": each(range(6), "hidden.{i}", "hidden.{i}", "hidden.{i}.linear", "hidden.{i}.linear.weight"),
        "gpt_bf16": weight(range(4), "transformer.h.{i}.mlp.c_fc.weight", "transformer.h.{i}.attn.c_proj.weight"),
        "autoencoder_fp16": each(range(2), "encoder.{i}", "encoder.{i}", "encoder.{i}.lin", "encoder.{i}.lin.weight"),
    },
}
