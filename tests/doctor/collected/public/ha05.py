"""Track the expert load of a small Mixtral during training with activation checkpointing."""
from contextlib import contextmanager

import torch
from transformers import MixtralConfig, MixtralForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB = 64
EXPERTS = 4
TOP_K = 2
BATCH = 8
LENGTH = 12


def build_model():
    config = MixtralConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=EXPERTS,
        num_experts_per_tok=TOP_K,
        max_position_embeddings=32,
        sliding_window=None,
        use_cache=False,
    )
    model = MixtralForCausalLM(config)
    model.set_experts_implementation("eager")
    model.activation_checkpointing_enable()
    return model.train()


class ExpertLoad:
    def __init__(self, model):
        self.gates = [layer.mlp.gate for layer in model.model.layers]
        self.counts = torch.zeros(len(self.gates), EXPERTS, dtype=torch.long)

    @contextmanager
    def record(self):
        def make_hook(layer):
            def hook(module, args, output):
                chosen = output[2]
                self.counts[layer] += torch.bincount(chosen.flatten(), minlength=EXPERTS)

            return hook

        handles = [gate.register_forward_hook(make_hook(i)) for i, gate in enumerate(self.gates)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def imbalance(self):
        share = self.counts / self.counts.sum(dim=1, keepdim=True)
        return share.max(dim=1).values * EXPERTS


def batches(steps):
    generator = torch.Generator().manual_seed(3)
    for _ in range(steps):
        start = torch.randint(0, VOCAB, (BATCH, 1), generator=generator)
        yield (start + torch.arange(LENGTH)) % VOCAB


def main(steps=12):
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    load = ExpertLoad(model)
    tokens = 0
    for step, batch in enumerate(batches(steps)):
        optimizer.zero_grad()
        with load.record():
            loss = model(input_ids=batch, labels=batch).loss
            loss.backward()
        optimizer.step()
        tokens += batch.numel()
        if step % 4 == 3:
            print(f"step {step + 1}: loss {loss.item():.3f}")

    per_token = load.counts.sum(dim=1) / tokens
    for layer in range(len(load.gates)):
        print(
            f"layer {layer}: assignments {load.counts[layer].tolist()}, "
            f"per token {per_token[layer]:.2f} (top-k {TOP_K}), imbalance {load.imbalance()[layer]:.2f}"
        )


if __name__ == "__main__":
    main()
