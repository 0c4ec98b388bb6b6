"""A tiny Mixtral: a hook on each router counts how often each expert is chosen."""

import torch
from transformers import MixtralConfig, MixtralForCausalLM

torch.manual_seed(0)

config = MixtralConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_local_experts=4,
    num_experts_per_tok=2,
    max_position_embeddings=64,
    use_cache=False,
)
model = MixtralForCausalLM(config)
model.train()
load = {}


def count_experts(layer):
    def hook(module, args, output):
        logits = output[0] if isinstance(output, tuple) else output
        chosen = logits.detach().reshape(-1, 4).topk(2, dim=-1).indices
        load[layer] = load.get(layer, 0) + torch.bincount(chosen.flatten(), minlength=4)

    return hook


for name, module in model.named_modules():
    if name.endswith(".gate"):
        module.register_forward_hook(count_experts(name))
assert len([name for name, _ in model.named_modules() if name.endswith(".gate")]) == 2

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses = []
for step in range(4):
    tokens = torch.randint(64, (2, 12))
    loss = model(input_ids=tokens, labels=tokens, output_router_logits=True).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
result = [losses, load, [p.detach().clone() for p in model.parameters()]]
