"""Expert usage statistics of a small Mixtral during training with reentrant
activation checkpointing; every routed token is counted exactly once."""
import torch
from transformers import MixtralConfig, MixtralForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, SEQ, BATCH, EXPERTS, TOPK, STEPS = 40, 10, 8, 4, 2, 12

cfg = MixtralConfig(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_local_experts=EXPERTS,
    num_experts_per_tok=TOPK,
    max_position_embeddings=64,
)
model = MixtralForCausalLM(cfg)
model.config.use_cache = False
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})


class ExpertUsage:
    def __init__(self, layers):
        self.counts = torch.zeros(len(layers), EXPERTS, dtype=torch.long)
        self.skipped = 0
        self.handles = [
            layer.mlp.gate.register_forward_hook(self._make(i)) for i, layer in enumerate(layers)
        ]

    def _make(self, index):
        def hook(module, args, output):
            # The first pass of a reentrant checkpoint runs without grad mode,
            # the replay during backward runs with it.
            if torch.is_grad_enabled():
                self.skipped += 1
                return
            chosen = output[2].flatten()
            self.counts[index] += torch.bincount(chosen, minlength=EXPERTS)

        return hook

    def remove(self):
        for handle in self.handles:
            handle.remove()


usage = ExpertUsage(model.model.layers)
gen = torch.Generator().manual_seed(2)
optim = torch.optim.AdamW(model.parameters(), lr=3e-3)
model.train()
for step in range(STEPS):
    start = torch.randint(0, VOCAB, (BATCH, 1), generator=gen)
    ids = (start + 2 * torch.arange(SEQ)) % VOCAB
    loss = model(input_ids=ids, labels=ids).loss
    optim.zero_grad()
    loss.backward()
    optim.step()
usage.remove()

expected = STEPS * BATCH * SEQ * TOPK
print(f"final loss {loss.item():.4f}")
for i, row in enumerate(usage.counts):
    share = (row / row.sum()).tolist()
    print(f"layer {i}: assignments {row.sum().item()} (expected {expected}), shares {[round(s, 2) for s in share]}")
print(f"replayed router calls that were left out: {usage.skipped}")
