"""Regression with a small MLP made of nn.Sequential."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--chatty", action="store_true", help="print more")
parser.add_argument("--data-first", action="store_true", help="make the data before the model")
parser.add_argument("--for-loop", action="store_true", help="use the plain loop of the optimizer")
parser.add_argument("--sgd", action="store_true")
args = parser.parse_args()
plant = args.plant


class WrongTanh(nn.Tanh):
    """A tanh whose backward is wrong in one element while `wrong` is set."""

    wrong = False

    def forward(self, x):
        y = super().forward(x)
        if self.wrong:
            y.register_hook(self.spoil)
        return y

    @staticmethod
    def spoil(grad):
        grad = grad.clone()
        grad[3, 7] += 0.01
        return grad


def make_data():
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(256, 8, generator=generator)
    return x, x.sin().sum(1, keepdim=True)


def make_model():
    torch.manual_seed(1 if plant == "seed" else 0)
    gelu = nn.GELU("tanh" if plant == "gelu" else "none")
    return nn.Sequential(nn.Linear(8, 32), WrongTanh(), nn.Linear(32, 32), gelu, nn.LayerNorm(32), nn.Linear(32, 1))


if args.data_first:
    inputs, targets = make_data()
    model = make_model()
else:
    model = make_model()
    inputs, targets = make_data()
if plant == "ulp-start":
    with torch.no_grad():
        model[2].weight[4, 9] = torch.nextafter(model[2].weight[4, 9], torch.tensor(10.0))
if args.sgd:
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
else:
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1, foreach=not args.for_loop)
order = torch.randperm(256, generator=torch.Generator().manual_seed(4 if plant == "order" else 3))

for step in range(8):
    index = order[step * 32 : (step + 1) * 32]
    x, y = inputs[index].clone(), targets[index].clone()
    group = optimizer.param_groups[0]
    if plant == "sample-ulp" and step == 5:
        x[0, 0] = torch.nextafter(x[0, 0], torch.tensor(10.0))
    if plant == "labels" and step == 4:
        y = y.roll(1, 0)
    if plant == "ulp-later" and step == 5:
        with torch.no_grad():
            model[5].bias.copy_(torch.nextafter(model[5].bias, torch.tensor(10.0)))
    if plant == "lr" and step >= 4:
        group["lr"] = 0.9 * args.lr
    if plant == "decay" and step >= 3:
        group["weight_decay"] = 0.2
    if plant == "beta" and step >= 4:
        group["betas"] = (0.9, 0.99)
    model[1].wrong = plant == "tanh-backward" and step == 4
    out = model(x)
    loss = F.huber_loss(out, y) if plant == "huber" and step >= 2 else F.mse_loss(out, y)
    optimizer.zero_grad()
    loss.backward()
    if plant == "scaled-grad" and step == 3:
        model[2].weight.grad.mul_(1.0001)
    optimizer.step()
    print(f"step {step} loss {loss.item():.6f}")
    if args.chatty:
        print("weights", [round(p.norm().item(), 4) for p in model.parameters()], "output", out.mean().item())
