"""A GAN for points on a ring: two models, two Adam optimizers."""

import json
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
FAULT = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = FAULT.get("kind", ""), FAULT.get("step", 0), FAULT.get("layer", "")
torch.manual_seed(FAULT.get("seed", 0))
NOISE, STEPS = 8, 200


class Generator(nn.Module):
    """Noise to points."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(NOISE, 64), nn.Linear(64, 64), nn.Linear(64, 2)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(z)))))


class Layer(nn.Module):
    """A layer of the discriminator."""

    step = 0

    def __init__(self, name: str, inputs: int, outputs: int) -> None:
        super().__init__()
        self.name = name
        self.fc = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.fc(x)
        if self.name == LAYER and Layer.step >= STEP:
            if KIND == "fwd_exp":
                h = h * torch.exp(100 * h.square().sum(1, keepdim=True))  # own activation
            if KIND == "bwd_where":
                h = torch.where(h > 0, h, -torch.exp(h * 0) * (-h).pow(0.5))
        return F.leaky_relu(h, 0.2)


class Discriminator(nn.Module):
    """Points to a score."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Layer("first", 2, 64)
        self.second = Layer("second", 64, 64)
        self.score = nn.Linear(64, 1)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return self.score(self.second(self.first(points)))[:, 0]


def real_points(n: int) -> torch.Tensor:
    """Points on a ring."""
    angle = torch.rand(n) * 6.2832
    return torch.stack([angle.cos(), angle.sin()], 1) + torch.randn(n, 2) * 0.05


def damage(generator: nn.Module, opt_d: torch.optim.Optimizer) -> None:
    """Accidents before one step."""
    if KIND == "w_scale":
        generator.get_submodule(LAYER).weight.data.mul_(100)
    if KIND == "param_nan":
        p = generator.get_submodule(LAYER).weight
        p.data = p.data * (p.data.sum() - p.data.sum()) / 0.0
    if KIND == "lr_jump":
        opt_d.param_groups[0]["lr"] *= 1000


def main() -> None:
    """Alternate between the two models."""
    generator, discriminator = Generator(), Discriminator()
    if KIND == "dead_bias":
        generator.get_submodule(LAYER).bias.data -= 500
    opt_d = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.99))
    opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.99))
    for step in range(STEPS):
        Layer.step = step
        if step == STEP:
            damage(generator, opt_d)
        real = real_points(64)
        if step == STEP and KIND == "data_inf":
            real = real / (real * 0).norm(dim=1, keepdim=True)
        if step == STEP and KIND == "data_nan":
            real[7] = float("nan")
        fake = generator(torch.randn(64, NOISE))
        yes, no = discriminator(real), discriminator(fake.detach())
        loss_d = F.softplus(-yes).mean() + F.softplus(no).mean()
        if step == STEP and KIND == "loss_log":
            loss_d = -(torch.log(torch.sigmoid(yes * 500)) + torch.log(1 - torch.sigmoid(no.abs() * 5000))).mean()
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
        loss_g = F.softplus(-discriminator(fake)).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        if step % 40 == 0 or step == STEPS - 1:
            ring = (fake.norm(dim=1) - 1).abs().mean().item()
            print(f"{step}: d {loss_d.item():.4f} g {loss_g.item():.4f} distance {ring:.4f}")


if __name__ == "__main__":
    main()
