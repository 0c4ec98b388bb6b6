"""Fine-tune a detector-style network from a checkpoint of the previous code layout.

In the previous release the stem lived at the top of the model ("stem.weight"); now it
belongs to the backbone ("backbone.stem.weight").  The backbone knows how to read the
old layout, so user code can keep calling load_state_dict with either kind of file.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)
torch.set_num_threads(1)

MOVED = ("stem.weight", "stem.bias")


class Backbone(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.body = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return F.relu(self.body(F.relu(self.stem(x))))


def read_old_layout(module, state_dict, prefix, *unused):
    for key in MOVED:
        if key in state_dict:
            state_dict["backbone." + key] = state_dict.pop(key)


class Detector(nn.Module):
    def __init__(self, width=8, classes=3):
        super().__init__()
        self.backbone = Backbone(width)
        self.head = nn.Linear(width, classes)
        self.register_load_state_dict_pre_hook(read_old_layout)

    def forward(self, x):
        return self.head(self.backbone(x).amax((2, 3)))


def make_data(n=192, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=g)
    x = 0.3 * torch.randn(n, 1, 10, 10, generator=g)
    for i, c in enumerate(y.tolist()):
        r = int(torch.randint(1, 6, (1,), generator=g))
        if c == 0:
            x[i, 0, r:r + 2, :] += 1.5
        elif c == 1:
            x[i, 0, :, r:r + 2] += 1.5
        else:
            x[i, 0, r:r + 4, r:r + 4] += 1.5
    return x, y


def train(model, x, y, steps):
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(steps):
        idx = torch.arange(step * 48, step * 48 + 48) % len(x)
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean().item()


def old_checkpoint(model):
    """The file that the previous release would have written."""
    out = {}
    for key, value in model.state_dict().items():
        short = key.removeprefix("backbone.")
        out[short if short in MOVED else key] = value.clone()
    out["scheduler.last_epoch"] = torch.tensor(12)
    return out


def main():
    x, y = make_data(seed=0)
    xt, yt = make_data(seed=1)
    trained = Detector()
    train(trained, x, y, steps=80)
    checkpoint = old_checkpoint(trained)
    print("keys in the file:", ", ".join(checkpoint))
    print(f"accuracy of the trained network {accuracy(trained, xt, yt):.3f}")

    model = Detector()
    model.load_state_dict(checkpoint, strict=False)
    same = sum(torch.equal(a, b) for a, b in zip(model.parameters(), trained.parameters()))
    print(f"restored parameters: {same} of {len(list(model.parameters()))}")
    print(f"accuracy of the restored network {accuracy(model, xt, yt):.3f}")


if __name__ == "__main__":
    main()
