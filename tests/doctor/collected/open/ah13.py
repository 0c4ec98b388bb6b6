"""Probe the layers of a frozen GPT-2: features under no_grad, the probe with gradients."""
import torch
import torch.nn as nn
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(52)
torch.set_num_threads(1)


class LayerFeatures:
    """Collects the vector of the last real token per layer; right padding is respected."""

    def __init__(self, model):
        self.lengths = None
        self.rows = [[] for _ in model.transformer.h]
        self.handles = [b.register_forward_hook(self._make(i)) for i, b in enumerate(model.transformer.h)]

    def _make(self, i):
        def hook(module, args, output):
            pick = torch.arange(len(output)), self.lengths - 1
            self.rows[i].append(output[pick].detach().clone())
        return hook

    def close(self):
        for h in self.handles:
            h.remove()
        return [torch.cat(r) for r in self.rows]


def make_batch(n, gen):
    lengths = torch.randint(4, 9, (n,), generator=gen)
    sign = torch.randint(0, 2, (n,), generator=gen)
    start = torch.randint(10, 40, (n, 1), generator=gen)
    ids = (start + torch.arange(9)[None] * (2 * sign[:, None] - 1)) % 50
    mask = (torch.arange(9)[None] < lengths[:, None]).long()
    return ids * mask, mask, lengths, sign


def extract(model, gen, batches):
    tap, labels = LayerFeatures(model), []
    with torch.no_grad():
        for _ in range(batches):
            ids, mask, tap.lengths, sign = make_batch(16, gen)
            model(input_ids=ids, attention_mask=mask)
            labels.append(sign)
    return tap.close(), torch.cat(labels)


def fit_probe(x, y, steps=80):
    probe = nn.Linear(x.shape[1], 2)
    opt = torch.optim.Adam(probe.parameters(), lr=5e-2)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(probe(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return probe


def main():
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=50, n_positions=16, n_embd=32, n_layer=3, n_head=4, bos_token_id=0,
        eos_token_id=0, initializer_range=0.2)).eval()
    gen = torch.Generator().manual_seed(1)
    train_x, train_y = extract(model, gen, 8)
    test_x, test_y = extract(model, gen, 4)
    for i, (x, t) in enumerate(zip(train_x, test_x)):
        probe = fit_probe(x, train_y)
        acc = (probe(t).argmax(1) == test_y).float().mean().item()
        print(f"layer {i}: {tuple(x.shape)} features, probe accuracy {acc:.3f}")


main()
