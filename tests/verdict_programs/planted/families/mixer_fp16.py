"""MLP-Mixer in fp16 autocast with a GradScaler and Adam: which token has the largest feature?"""

import json
import os

import torch
from torch import nn

torch.set_num_threads(1)
FAULT = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = FAULT.get("kind", ""), FAULT.get("step", 0), FAULT.get("layer", "")
torch.manual_seed(FAULT.get("seed", 0))
TOKENS, WIDTH, CLASSES, STEPS = 6, 32, 6, 150
position = [0]


class Mixer(nn.Module):
    """Mixes tokens, then channels."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.norm_t, self.norm_c = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.token_in, self.token_out = nn.Linear(TOKENS, 24), nn.Linear(24, TOKENS)
        self.channel_in, self.channel_out = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        started = self.name == LAYER and position[0] >= STEP
        h = torch.relu(self.token_in(self.norm_t(x).transpose(1, 2)))
        if started and KIND == "fp16_overflow":
            h = torch.exp(h.half() * 100 + 12)
        x = x + self.token_out(h).transpose(1, 2)
        h = torch.relu(self.channel_in(self.norm_c(x)))
        if started and KIND == "dropout_one":
            h = nn.functional.dropout(h, 1.0)
        return x + self.channel_out(h)


class Model(nn.Module):
    """Embedding, mixers, mean, linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Linear(4, WIDTH)
        self.mixers = nn.ModuleList([Mixer(f"mixers.{i}") for i in range(3)])
        self.final = nn.LayerNorm(WIDTH)
        self.answer = nn.Linear(WIDTH, CLASSES)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        x = self.lift(features)
        for mixer in self.mixers:
            x = mixer(x)
        return self.answer(self.final(x).mean(1))


def data(n: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """Which token has the largest first feature?"""
    x = torch.randn(n, TOKENS, 4)
    return x, x[:, :, 0].argmax(1)


model = Model()
if KIND == "frozen":
    model.get_submodule(LAYER).requires_grad_(False)
optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=4e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
criterion = nn.CrossEntropyLoss()
for step in range(STEPS):
    position[0] = step
    x, y = data()
    if step == STEP:
        if KIND == "batch_scale":
            x = x * 3000
        if KIND == "batch_labels":
            y = (y + 2) % CLASSES
        if KIND == "w_scale":
            model.get_parameter(LAYER).data *= -200  # wrong scale and sign
        if KIND == "opt_state":
            for s in optimizer.state.values():
                s["exp_avg_sq"].mul_(1e-8)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = criterion(model(x), y)
    if KIND == "fp16_loss" and step >= STEP:
        loss = loss / (torch.zeros(()) + 1e-13)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 25 == 0 or step == STEPS - 1:
        print(f"step {step} loss {loss.item():.4f}")
