"""Simulate 4-bit activations in a GPT-2 and see what it costs."""
import torch
import torch.nn as nn
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

torch.manual_seed(27)
torch.set_num_threads(1)


def fake_quant(x, bits):
    top = 2 ** (bits - 1) - 1
    scale = x.abs().amax(dim=-1, keepdim=True).clamp_min(1e-8) / top
    return (x / scale).round().clamp(-top, top) * scale


class QuantSimulator:
    """Rounds the input of every matrix multiplication with weights."""

    def __init__(self, model, bits):
        self.bits = bits
        self.names = []
        self.handles = []
        for name, module in model.named_modules():
            if isinstance(module, (nn.Linear, Conv1D)):
                self.names.append(name)
                self.handles.append(module.register_forward_pre_hook(self._round_input))

    def _round_input(self, module, args):
        return (fake_quant(args[0], self.bits),)

    def close(self):
        for h in self.handles:
            h.remove()


def build_and_fit(steps=30):
    cfg = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=3, n_head=4,
                     bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0,
                     attn_pdrop=0.0)
    model = GPT2LMHeadModel(cfg).train()
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(steps):
        ids = (torch.arange(8)[:, None] * 3 + 2 * torch.arange(12)[None] + step) % 64
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
    return model.eval()


@torch.no_grad()
def evaluate(model):
    ids = (torch.arange(10)[:, None] * 6 + 2 * torch.arange(12)[None] + 1) % 64
    return model(input_ids=ids, labels=ids).loss.item()


def main():
    model = build_and_fit()
    full = evaluate(model)
    print(f"full precision: loss {full:.4f}")
    for bits in (8, 4, 3):
        sim = QuantSimulator(model, bits)
        loss = evaluate(model)
        sim.close()
        print(f"{bits}-bit activations in {len(sim.names)} layers: loss {loss:.4f} ({loss - full:+.4f})")
    print("weight layers per block:", sum(n.startswith("transformer.h.0.") for n in sim.names))


if __name__ == "__main__":
    main()
