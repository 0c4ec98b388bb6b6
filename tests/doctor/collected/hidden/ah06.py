"""Fused backward: each tensor is clipped and updated inside its own post-accumulate hook."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(45)
torch.set_num_threads(1)
MAX_NORM = 0.5


class FusedUpdates:
    """One AdamW per tensor; the gradient is gone as soon as it has been used."""

    def __init__(self, model, lr):
        self.optimizers = {p: torch.optim.AdamW([p], lr=lr, weight_decay=0.0) for p in model.parameters()}
        self.norms = {}
        self.names = {p: n for n, p in model.named_parameters()}
        self.handles = [p.register_post_accumulate_grad_hook(self._update) for p in self.optimizers]

    def _update(self, param):
        # per-tensor clipping has to happen here: after backward no gradient is left
        norm = torch.nn.utils.clip_grad_norm_([param], MAX_NORM)
        self.norms[self.names[param]] = norm.item()
        self.optimizers[param].step()
        self.optimizers[param].zero_grad(set_to_none=True)


def batch(step):
    return (torch.arange(6)[:, None] * 5 + 2 * torch.arange(10)[None] + step) % 47 + 3


def main():
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
        initializer_range=0.1, bos_token_id=1, eos_token_id=2, pad_token_id=0)).train()
    fused = FusedUpdates(model, lr=5e-3)
    losses = []
    for step in range(15):
        ids = batch(step)
        loss = model(input_ids=ids, labels=ids).loss
        # one backward per step, so every hook runs exactly once per step
        loss.backward()
        losses.append(loss.item())
        if step % 5 == 0:
            biggest = max(fused.norms, key=fused.norms.get)
            print(f"step {step:2d}: loss {loss.item():.4f}, largest norm {fused.norms[biggest]:.3f} in {biggest}")
    held = sum(p.grad is not None for p in model.parameters())
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}; tensors that still hold a gradient: {held}")
    print("tensors updated in the last step:", len(fused.norms), "of", sum(1 for _ in model.parameters()))
    for h in fused.handles:
        h.remove()


main()
