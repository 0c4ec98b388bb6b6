"""Linear probe: does a frozen GPT-2 know whether a sequence counts up or down?"""
import torch
import torch.nn as nn
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(28)
torch.set_num_threads(1)


class FeatureTap:
    """Last-position output of one block for the batch that went through the model."""

    def __init__(self, block):
        self.features = None
        self.handle = block.register_forward_hook(self._take)

    def _take(self, module, args, output):
        # a copy of its own, independent of what the model does next
        self.features = output[:, -1].clone()


def sequences(n, gen):
    start = torch.randint(0, 50, (n, 1), generator=gen)
    sign = torch.randint(0, 2, (n,), generator=gen)
    steps = torch.arange(8)[None] * (2 * sign[:, None] - 1)
    return (start + steps) % 50, sign


def extract(model, layer, ids):
    tap = FeatureTap(model.transformer.h[layer])
    # no graph is needed for a frozen model; this is the fastest way to run it
    with torch.no_grad():
        model(input_ids=ids)
    tap.handle.remove()
    return tap.features


def train_probe(features, labels, epochs=60):
    probe = nn.Linear(features.shape[1], 2)
    opt = torch.optim.Adam(probe.parameters(), lr=5e-2)
    for _ in range(epochs):
        loss = nn.functional.cross_entropy(probe(features), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return probe


def main():
    cfg = GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=3, n_head=4,
                     bos_token_id=0, eos_token_id=0, initializer_range=0.2)
    model = GPT2LMHeadModel(cfg).eval()
    gen = torch.Generator().manual_seed(3)
    train_ids, train_y = sequences(96, gen)
    test_ids, test_y = sequences(48, gen)

    for layer in range(3):
        train_x = extract(model, layer, train_ids)
        test_x = extract(model, layer, test_ids)
        print(f"layer {layer}: features {tuple(train_x.shape)}, mean norm {train_x.norm(dim=1).mean():.3f}")
        probe = train_probe(train_x, train_y)
        acc = (probe(test_x).argmax(1) == test_y).float().mean().item()
        print(f"layer {layer}: probe accuracy {acc:.3f}")
    print("probing finished")


main()
