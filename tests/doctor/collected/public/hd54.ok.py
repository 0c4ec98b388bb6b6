"""Large activations wait for backward on disk; meta step with a retained graph."""
import os
import tempfile
import uuid

import torch
from torch import nn
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks


class OnDisk:
    """Owns one file; the file goes away together with the graph node that refers to it."""

    def __init__(self, folder, tensor):
        self.path = os.path.join(folder, uuid.uuid4().hex + ".pt")
        torch.save(tensor.detach(), self.path)

    def load(self):
        return torch.load(self.path)

    def __del__(self):
        os.remove(self.path)


class Spill:
    def __init__(self, folder, weights, minimum=2000):
        self.folder = folder
        self.weights = {weight.untyped_storage().data_ptr() for weight in weights}
        self.minimum = minimum
        self.written = 0
        self.read = 0

    def pack(self, tensor):
        if tensor.numel() < self.minimum or tensor.untyped_storage().data_ptr() in self.weights:
            return tensor
        self.written += 1
        return OnDisk(self.folder, tensor)

    def unpack(self, stored):
        if isinstance(stored, torch.Tensor):
            return stored
        self.read += 1
        return stored.load()

    def files(self):
        return len(os.listdir(self.folder))


class TwoHeads(nn.Module):
    def __init__(self, inputs=30, width=80):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.price = nn.Linear(width, 1)
        self.risk = nn.Linear(width, 1)

    def forward(self, x):
        shared = self.trunk(x)
        return self.price(shared).squeeze(-1), self.risk(shared).squeeze(-1)


def balanced_step(model, optimizer, x, price, risk, spill):
    """Gradient of each task on the trunk, scaled to the same norm before they are added."""
    trunk = list(model.trunk.parameters())
    with saved_tensors_hooks(spill.pack, spill.unpack):
        out_price, out_risk = model(x)
        losses = [F.mse_loss(out_price, price), F.binary_cross_entropy_with_logits(out_risk, risk)]
    optimizer.zero_grad()
    parts = [torch.autograd.grad(loss, trunk, retain_graph=True) for loss in losses]
    sum(losses).backward()
    norms = [torch.stack([g.norm() for g in part]).norm() for part in parts]
    target = sum(norms) / 2
    for index, weight in enumerate(trunk):
        weight.grad = sum(part[index] * (target / norm) for part, norm in zip(parts, norms))
    optimizer.step()
    return [loss.item() for loss in losses]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(640, 30)
    price = x[:, 0] + 0.5 * x[:, 1] * x[:, 2]
    risk = (x[:, 3] + x[:, 0] > 0).float()
    model = TwoHeads()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with tempfile.TemporaryDirectory() as folder:
        spill = Spill(folder, model.parameters())
        for epoch in range(5):
            for rows in torch.randperm(len(x)).split(80):
                losses = balanced_step(model, optimizer, x[rows], price[rows], risk[rows], spill)
            print(f"epoch {epoch}: price {losses[0]:.4f} risk {losses[1]:.4f}")
        print(f"written {spill.written}, read {spill.read}, files left {spill.files()}")


if __name__ == "__main__":
    main()
