"""Masked training with checkpoint and resume: masks are buffers, their hooks are set up again after loading."""
import io

import torch
from torch import nn

torch.set_num_threads(1)


class MaskedNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 24)
        self.b = nn.Linear(24, 2)
        self.register_buffer("mask", torch.ones(24, 8))
        self._handle = None

    def freeze_mask(self):
        """Hooks on parameters do not survive saving and copying, so this may be called any time."""
        if self._handle is not None:
            self._handle.remove()
        mask = self.mask
        self._handle = self.a.weight.register_hook(lambda g: g * mask)
        with torch.no_grad():
            self.a.weight.mul_(mask)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


def train(model, opt, x, y, steps):
    for _ in range(steps):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
    return loss.item()


def zeros(model):
    return int((model.a.weight == 0).sum())


def main():
    torch.manual_seed(0)
    x = torch.randn(100, 8)
    y = (x[:, 0] > x[:, 1]).long()
    model = MaskedNet()
    model.mask.copy_((torch.rand(24, 8) > 0.5).float())
    model.freeze_mask()
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    print(f"first half: loss {train(model, opt, x, y, 15):.4f}, zeros {zeros(model)}")

    buf = io.BytesIO()
    torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, buf)
    saved = torch.load(io.BytesIO(buf.getvalue()))

    resumed = MaskedNet()
    resumed.load_state_dict(saved["model"], assign=True)
    resumed.freeze_mask()                   # after the load, the parameters are other objects now
    opt = torch.optim.Adam(resumed.parameters(), lr=0.01)
    opt.load_state_dict(saved["opt"])
    print(f"second half: loss {train(resumed, opt, x, y, 15):.4f}, zeros {zeros(resumed)}")
    resumed.freeze_mask()
    print("hooks on the weight:", len(resumed.a.weight._backward_hooks))


if __name__ == "__main__":
    main()
