"""Two views through one shared encoder, as in SimSiam: the encoder and the predictor run twice per step."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--unrolled", action="store_true", help="no list comprehensions")
args = parser.parse_args()
plant = args.plant
torch.set_num_threads(1)
torch.manual_seed(51)
step = 0


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 16))
        self.predictor = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 16))

    def forward(self, a, b):
        if plant == "swap" and step == 5:
            a, b = b, a
        if args.unrolled:
            za = self.encoder(a)
            zb = self.encoder(b)
            z = [za, zb]
            pa = self.predictor(za)
            p = [pa, self.predictor(zb)]
        else:
            z = [self.encoder(view) for view in (a, b)]
            p = [self.predictor(x) for x in z]
        return z, p


def similarity(p, z):
    if not (plant == "stop-gradient" and step >= 6):
        z = z.detach()
    return F.cosine_similarity(p, z).mean()


model = Siamese()
matrices = [p for p in model.parameters() if p.dim() == 2]
vectors = [p for p in model.parameters() if p.dim() == 1]
groups = [{"params": matrices, "weight_decay": 1e-2}, {"params": vectors, "weight_decay": 0.0}]
optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
g = torch.Generator().manual_seed(52)
base = torch.randn(160, 20, generator=g)
for step in range(16):
    if plant == "augment-seed" and step == 9:
        g.manual_seed(53)
    x = base[step * 10 : step * 10 + 10]
    a, b = (x + 0.2 * torch.randn(10, 20, generator=g) for _ in range(2))
    if plant == "freeze" and step >= 8:
        model.predictor[0].requires_grad_(False)
    if plant == "decay" and step >= 4:
        optimizer.param_groups[1]["weight_decay"] = 1e-2
    if plant == "momentum-reset" and step == 7:
        optimizer.state.clear()
    z, p = model(a, b)
    loss = -(similarity(p[0], z[1]) + similarity(p[1], z[0])) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
