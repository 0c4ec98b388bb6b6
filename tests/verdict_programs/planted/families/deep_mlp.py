"""Classification of points on spirals: a deep tanh network trained with Adam, loop in functions."""

import json
import os
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
FAULT = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = FAULT.get("kind", ""), FAULT.get("step", 0), FAULT.get("layer", "")
torch.manual_seed(FAULT.get("seed", 0))
DEPTH, WIDTH, CLASSES, STEPS = 8, 40, 5, 180
clock = {"step": 0}


class SpiralNet(nn.Module):
    """A stack of linear layers; the forward pass of the root does all the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(2, WIDTH)
        self.layers = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)])
        self.output = nn.Linear(WIDTH, CLASSES)
        if KIND == "unused_head":
            self.auxiliary = nn.Linear(WIDTH, CLASSES)
        for layer in [self.embed, *self.layers]:
            nn.init.xavier_normal_(layer.weight, gain=1.4)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        act = torch.sigmoid if KIND == "sigmoid_stack" else torch.tanh
        h = act(self.embed(points))
        for layer in self.layers:
            h = act(layer(h))
        if KIND == "fwd_log" and LAYER == "" and clock["step"] == STEP:
            h = h * torch.log(h.var(dim=1, keepdim=True) - 0.3)
        return self.output(h)


def spirals(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points on one of several arms."""
    label = torch.randint(CLASSES, (n,))
    radius = torch.rand(n) * 0.9 + 0.1
    angle = radius * 4 + label * (2 * torch.pi / CLASSES) + torch.randn(n) * 0.05
    return 2 * torch.stack([radius * angle.cos(), radius * angle.sin()], 1), label


def loader() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches, some of them damaged."""
    for step in range(STEPS):
        points, label = spirals(128)
        if step == STEP and KIND == "data_inf":
            points[5:9] = points[5:9] / (points[5:9] - points[5:9])[:, :1].abs().sum()
        if step == STEP and KIND == "batch_scale":
            points = points * 1000.0
        if step == STEP and KIND == "batch_labels":
            label = (label + 1) % CLASSES
        yield points, label


def break_forward(model: SpiralNet) -> None:
    """Give one layer a forward pass with a mistake."""
    layer = model.get_submodule(LAYER)

    def forward(x: torch.Tensor) -> torch.Tensor:
        h = F.linear(x, layer.weight, layer.bias)
        if clock["step"] != STEP:
            return h
        if KIND == "fwd_log":
            return h + torch.log(h - h.max())
        if KIND == "fwd_exp":
            return torch.exp(h * 300) / torch.exp(h * 300).sum(1, keepdim=True)
        zero = h - h.detach()  # bwd_sqrt: the length of a vector of zeros
        return h + zero.square().sum(1, keepdim=True).sqrt()

    layer.forward = forward


def learning_rate(step: int) -> float:
    """Constant, unless the schedule has a bug."""
    base = 2.0 if KIND == "lr_high" else 3e-3
    if KIND == "lr_spike" and step == STEP:
        return base * 1000
    if KIND == "lr_nan" and step >= STEP:
        return base * float(torch.tensor(1.0) / torch.tensor(0.0))  # divided by the number of remaining epochs
    return base


def damage(model: SpiralNet, optimizer: torch.optim.Adam) -> None:
    """Accidents between two steps."""
    if KIND == "w_scale":
        model.get_submodule(LAYER).weight.data.mul_(40.0)
    if KIND == "opt_state":
        for state in optimizer.state.values():
            state["exp_avg_sq"].mul_(1e-7)  # second moments lost when the state was loaded


def main() -> None:
    """Train."""
    model = SpiralNet()
    if KIND in ("fwd_log", "fwd_exp", "bwd_sqrt") and LAYER:
        break_forward(model)
    if KIND == "frozen":
        model.get_submodule(LAYER).requires_grad_(False)
    if KIND == "grad_hook":
        layer = model.get_submodule(LAYER)
        layer.weight.register_hook(lambda g: g * 1e4 if clock["step"] >= STEP else g)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    for step, (points, label) in enumerate(loader()):
        clock["step"] = step
        optimizer.param_groups[0]["lr"] = learning_rate(step)
        if step == STEP and KIND in ("w_scale", "opt_state"):
            damage(model, optimizer)
        loss = F.cross_entropy(model(points), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
