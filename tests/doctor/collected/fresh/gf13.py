"""Ablation study on a sequence classifier: switch off hidden units of the LSTM and watch the accuracy."""
import torch
import torch.nn as nn

torch.manual_seed(13)
HIDDEN = 12


class SeqClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, 2)

    def forward(self, x):
        _, (h_n, _) = self.lstm(x)
        return self.head(h_n[-1])


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 7, 4, generator=g)
    y = (x[:, :, 0].sum(1) > 0).long()
    return x, y


def train(model, x, y):
    opt = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(40):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def ablate(units):
    """Hook for an nn.LSTM: the given hidden units are set to zero."""
    mask = torch.ones(HIDDEN)
    mask[units] = 0.0

    def hook(module, args, output):
        out, state = output
        return out * mask, state
    return hook


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean().item()


x, y = make_data(200, 1)
x_val, y_val = make_data(200, 2)
model = SeqClassifier()
print(f"loss {train(model, x, y):.3f}")
model.eval()
base = accuracy(model, x_val, y_val)
print(f"no ablation      acc {base:.3f}")

drops = []
for k in (3, 6, 12):
    # strongest units first, judged by the weights of the head
    order = model.head.weight.detach().abs().sum(0).argsort(descending=True)
    handle = model.lstm.register_forward_hook(ablate(order[:k]))
    acc = accuracy(model, x_val, y_val)
    handle.remove()
    drops.append(base - acc)
    print(f"{k:2d} units removed acc {acc:.3f}")
print(f"largest drop {max(drops):.3f}")
print("conclusion:", "the classifier depends on these units" if max(drops) > 0.1 else "the units are redundant")
