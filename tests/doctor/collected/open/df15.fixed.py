"""Keep a frozen backbone out of the checkpoint of a small adapter model."""
import io

import torch
from torch import nn

torch.set_num_threads(1)


class Backbone(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        return x + self.layers(x)


class AdapterModel(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.backbone = Backbone(dim).requires_grad_(False)
        self.down = nn.Linear(dim, 4)
        self.up = nn.Linear(4, dim)
        self.head = nn.Linear(dim, 2)
        self.backbone._register_state_dict_hook(skip_backbone)

    def forward(self, x):
        h = self.backbone(x)
        return self.head(h + self.up(torch.relu(self.down(h))))


def skip_backbone(module, state_dict, prefix, local_metadata):
    """The backbone is available everywhere, so leave it out of what is written."""
    for k in [k for k in state_dict if k.startswith(prefix)]:
        del state_dict[k]


def train(model, steps=5):
    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
    x = torch.randn(32, 32)
    y = (x[:, 0] > 0).long()
    for _ in range(steps):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    model = AdapterModel()
    print(f"loss {train(model):.4f}")

    buf = io.BytesIO()
    torch.save(model.state_dict(), buf)
    state = torch.load(io.BytesIO(buf.getvalue()))
    numbers = sum(v.numel() for v in state.values())
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"checkpoint: {len(state)} tensors, {numbers} numbers; trainable are {trainable}")

    other = AdapterModel()
    result = other.load_state_dict(state, strict=False)
    print("missing when loaded:", len(result.missing_keys))


if __name__ == "__main__":
    main()
