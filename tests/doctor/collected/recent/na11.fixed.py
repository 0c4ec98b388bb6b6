"""Expert ablation study on a small Mixtral: switch off one expert at a time by
masking its router logit and measure how much the language-model loss suffers."""
import contextlib
from collections import Counter

import torch
from transformers import MixtralConfig, MixtralForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, SEQ, EXPERTS = 40, 14, 4

cfg = MixtralConfig(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_local_experts=EXPERTS,
    num_experts_per_tok=2,
    max_position_embeddings=64,
    initializer_range=0.1,
)
model = MixtralForCausalLM(cfg)


def batch(gen, size=16):
    start = torch.randint(0, VOCAB, (size, 1), generator=gen)
    stride = torch.randint(1, 4, (size, 1), generator=gen)
    return (start + stride * torch.arange(SEQ)) % VOCAB


gen = torch.Generator().manual_seed(1)
optim = torch.optim.AdamW(model.parameters(), lr=5e-3)
model.train()
for step in range(40):
    ids = batch(gen)
    loss = model(input_ids=ids, labels=ids).loss
    optim.zero_grad()
    loss.backward()
    optim.step()
model.eval()
print(f"training loss {loss.item():.3f}")


@contextlib.contextmanager
def without_expert(expert):
    def mask_expert(module, args, output):
        logits, scores, indices = output
        logits = logits.clone()
        logits[:, expert] = float("-inf")
        scores, indices = logits.softmax(-1).topk(module.top_k, dim=-1)
        scores = scores / scores.sum(-1, keepdim=True)
        return logits, scores, indices

    handles = [layer.mlp.gate.register_forward_hook(mask_expert) for layer in model.model.layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


usage = Counter()


def count_tokens(module, args):
    top_k_index = args[1]
    usage.update(top_k_index.flatten().tolist())


for layer in model.model.layers:
    layer.mlp.experts.register_forward_pre_hook(count_tokens)


@torch.no_grad()
def evaluate():
    usage.clear()
    ids = batch(torch.Generator().manual_seed(50), size=32)
    return model(input_ids=ids, labels=ids).loss.item()


baseline = evaluate()
print(f"loss with all experts {baseline:.4f}, tokens per expert {[usage[e] for e in range(EXPERTS)]}")
changes = []
for expert in range(EXPERTS):
    with without_expert(expert):
        ablated = evaluate()
    changes.append(ablated - baseline)
    print(f"expert {expert} off: loss change {changes[-1]:+.4f}, tokens it still received {usage[expert]}")
print(f"most important expert: {max(range(EXPERTS), key=changes.__getitem__)}")
