"""Fine-tune a Llama with activation checkpointing and watch how often MLP units fire."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(3)
torch.set_num_threads(1)


class FiringMonitor:
    """Counts, per MLP unit, the tokens for which the gate activation is positive."""

    def __init__(self, model, token_budget):
        self.budget = token_budget
        self.active = False
        self.layers = len(model.model.layers)
        self.tokens = [0] * self.layers
        self.fired = [0] * self.layers
        self.handles = [
            layer.mlp.act_fn.register_forward_hook(self.make_hook(i))
            for i, layer in enumerate(model.model.layers)
        ]

    def make_hook(self, i):
        def hook(module, args, output):
            if not self.active or self.tokens[i] >= self.budget:
                return
            flat = output.detach().flatten(0, 1)
            self.tokens[i] += flat.shape[0]
            self.fired[i] = self.fired[i] + (flat > 0).sum(0)
        return hook

    def complete(self):
        return min(self.tokens) >= self.budget

    def close(self):
        for h in self.handles:
            h.remove()


def train():
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=60, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
        bos_token_id=1, eos_token_id=2, pad_token_id=0, use_cache=False))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)

    data = [torch.randint(3, 60, (4, 16)) for _ in range(8)]
    # the budget is the size of the corpus: every batch goes in exactly once
    monitor = FiringMonitor(model, token_budget=sum(b.numel() for b in data))
    covered = None
    for step, ids in enumerate(data):
        monitor.active = True
        loss = model(input_ids=ids, labels=ids).loss
        monitor.active = False
        loss.backward()
        opt.step()
        opt.zero_grad()
        if covered is None and monitor.complete():
            covered = step + 1
        print(f"step {step}: loss {loss.item():.4f}  tokens counted {monitor.tokens[0]}")
    monitor.close()

    print(f"budget of {monitor.budget} tokens filled after {covered} of {len(data)} batches")
    for i in range(monitor.layers):
        rate = monitor.fired[i] / monitor.tokens[i]
        print(f"layer {i}: mean firing rate {rate.mean():.3f}, rarest unit {rate.min():.3f}")


if __name__ == "__main__":
    train()
