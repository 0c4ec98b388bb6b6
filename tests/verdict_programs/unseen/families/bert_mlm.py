"""Masked language modelling with a tiny BERT from transformers, on a grammar of repeated motifs."""
import json
import os
import types

import torch
from transformers import BertConfig, BertForMaskedLM, get_linear_schedule_with_warmup

torch.set_num_threads(1)
F_ = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = F_.get("kind", ""), F_.get("step", 0), F_.get("layer", "")
torch.manual_seed(F_.get("seed", 0))
VOCAB, MASK, LENGTH, STEPS = 30, 1, 12, 112
clock = {"step": 0}


def build():
    config = BertConfig(vocab_size=VOCAB + 6, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
                        intermediate_size=48, max_position_embeddings=LENGTH, type_vocab_size=1,
                        tie_word_embeddings=False, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = BertForMaskedLM(config)
    model.cls.predictions.bias = model.cls.predictions.decoder.bias
    return model


def text(n=24):
    start, stride = torch.randint(0, 9, (n, 1)), torch.randint(1, 4, (n, 1))
    ids = 4 + (start + stride * torch.arange(LENGTH)) % (VOCAB - 4)
    labels = ids.clone()
    hidden = torch.rand(n, LENGTH) < 0.2
    hidden[:, 3] = True
    labels[~hidden] = -100
    ids = ids.masked_fill(hidden, MASK)
    return ids, labels


def patch(module, wrap):
    """Replace the forward method of a module."""
    old = module.forward
    module.forward = types.MethodType(lambda self, *a, **k: wrap(old, *a, **k), module)


def sabotage(model):
    if KIND == "bwd_sqrt":
        def wrap(old, *a, **k):
            y = old(*a, **k)
            if clock["step"] < STEP:
                return y
            distance = (y - y.detach()).abs()
            return y + 1e-3 * torch.pow(distance, 0.5)
        patch(model.get_submodule(LAYER), wrap)
    if KIND == "detach_block":
        def wrap(old, *a, **k):
            if clock["step"] < STEP:
                return old(*a, **k)
            with torch.no_grad():
                return old(*a, **k)
        patch(model.get_submodule(LAYER + ".attention.self"), wrap)
    if KIND == "grad_shrink":
        def wrap(old, hidden, *a, **k):
            hidden = hidden * 1.0
            hidden.register_hook(lambda g: g / 3e6)
            return old(hidden, *a, **k)
        patch(model.get_submodule(LAYER), wrap)
    if KIND == "frozen":
        model.get_submodule(LAYER).requires_grad_(False)


def run():
    model = build()
    sabotage(model)
    decay = 60.0 if KIND == "wd_huge" else 0.01
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=5e-3, weight_decay=decay)
    scheduler = get_linear_schedule_with_warmup(optimizer, 10, 4 * STEPS)
    model.train()
    for step in range(STEPS):
        clock["step"] = step
        ids, labels = text()
        if step == STEP:
            if KIND == "loss_ignored":
                labels.fill_(-100)
            if KIND == "batch_labels":
                labels = torch.where(labels >= 0, torch.randint(4, VOCAB, labels.shape), labels)
            if KIND == "adam_eps0":
                for group in optimizer.param_groups:
                    group["eps"] = 0.0
            if KIND == "lr_nan":
                optimizer.param_groups[0]["lr"] = float("inf") - float("inf")
            if KIND == "w_reinit":
                weight = model.get_parameter(LAYER)
                weight.data.uniform_(-1.5, 1.5)
            if KIND == "opt_state":
                for p in params:
                    optimizer.state[p]["exp_avg_sq"] = torch.full_like(p, 1e-14)
        out = model(input_ids=ids, labels=labels)
        optimizer.zero_grad()
        out.loss.backward()
        if KIND == "clip_small":
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=5e-4)
        optimizer.step()
        scheduler.step()
        if step % 30 == 0 or step == STEPS - 1:
            print({"step": step, "loss": round(out.loss.item(), 4)})


run()
