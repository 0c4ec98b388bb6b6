"""A small residual CNN in fp16 autocast with a GradScaler and SGD."""

import json
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
FAULT = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = FAULT.get("kind", ""), FAULT.get("step", 0), FAULT.get("layer", "")
torch.manual_seed(FAULT.get("seed", 0))


class Residual(nn.Module):
    """Two convolutions with group norm."""

    current = 0

    def __init__(self, name: str, channels: int) -> None:
        super().__init__()
        self.name = name
        self.a = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.GroupNorm(2, channels)
        self.b = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.norm(self.a(x)))
        h = self.b(h)
        if self.name == LAYER and Residual.current >= STEP:
            if KIND == "fp16_overflow":
                h = h * 1e4 * 1e4  # pixels in the wrong unit, twice
            if KIND == "detach_block":
                h = h.detach()
        return F.relu(x + h)


class Net(nn.Module):
    """Stem, residual blocks, linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, stride=2, padding=1)
        self.body = nn.Sequential(*[Residual(f"body.{i}", 8) for i in range(4)])
        self.fc = nn.Linear(8, 3)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return self.fc(self.body(F.relu(self.stem(picture))).mean((2, 3)))


def sample(n: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """Horizontal stripes, vertical stripes, or a chess board."""
    y = torch.randint(3, (n,))
    line = torch.arange(10) % 4 < 2
    rows, columns = line[:, None].expand(10, 10), line[None].expand(10, 10)
    shapes = torch.stack([rows, columns, rows ^ columns]).float() * 2 - 1
    return shapes[y][:, None] + torch.randn(n, 1, 10, 10) * 1.2, y


def fit(steps: int = 140) -> None:
    """Train with loss scaling."""
    net = Net()
    keep = [p for n, p in net.named_parameters() if not (KIND == "not_in_opt" and n.startswith(LAYER + "."))]
    sgd = torch.optim.SGD(keep, lr=0.03, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(steps):
        Residual.current = step
        x, y = sample()
        if step == STEP:
            if KIND == "lr_jump":
                sgd.param_groups[0]["lr"] = 20.0
            if KIND == "opt_state":
                for state in sgd.state.values():
                    state["momentum_buffer"].mul_(scaler.get_scale())  # saved before unscaling
            if KIND == "w_scale":
                net.get_parameter(LAYER).data.mul_(100.0)
            if KIND == "batch_labels":
                y = (y + 1) % 3
        sgd.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(net(x), y)
        if KIND == "fp16_loss" and step >= STEP:
            loss = loss * 1e14
        scaler.scale(loss).backward()
        scaler.step(sgd)
        scaler.update()
        if step % 20 == 0:
            print(step, f"{loss.item():.4f}", scaler.get_scale())


fit()
