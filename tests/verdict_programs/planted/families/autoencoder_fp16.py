"""An autoencoder (plain ReLU stack) in fp16 autocast with a GradScaler and Adam."""

import json
import os

import torch
from torch import nn

torch.set_num_threads(1)
FAULT = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = FAULT.get("kind", ""), FAULT.get("step", 0), FAULT.get("layer", "")
torch.manual_seed(FAULT.get("seed", 0))
SIZES = [24, 48, 32, 6, 32, 48]
LOOPS = 160


class Dense(nn.Module):
    """Linear layer and activation."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.lin = nn.Linear(inputs, outputs)
        self.act = nn.Sigmoid() if KIND == "sigmoid_stack" else nn.LeakyReLU(0.1)
        if KIND == "dead_bias":
            self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.lin(x))


class Autoencoder(nn.Module):
    """Encoder, narrow middle, decoder."""

    def __init__(self) -> None:
        super().__init__()
        stack = [Dense(a, b) for a, b in zip(SIZES, SIZES[1:], strict=False)]
        self.encoder, self.decoder = nn.Sequential(*stack[:3]), nn.Sequential(*stack[3:])
        self.readout = nn.Linear(48, 24)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        return self.readout(self.decoder(self.encoder(signal)))


class Session:
    """A training session."""

    def __init__(self) -> None:
        self.net = Autoencoder()
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2048.0)
        decay = 30.0 if KIND == "wd_huge" else 0.0
        if KIND == "dead_bias":
            self.net.get_submodule(LAYER).lin.bias.data.fill_(-200.0)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=3e-3, weight_decay=decay)
        self.mix = torch.randn(4, 24)
        self.i = 0
        if KIND == "fp16_overflow":
            self.net.get_submodule(LAYER).register_forward_pre_hook(self.unit)
        if KIND == "grad_hook":
            self.net.get_submodule(LAYER).lin.weight.register_hook(lambda g: g * 1e4 if self.i >= STEP else g)

    def unit(self, module: nn.Module, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        """From one step on the scale of the activations is wrong; the layer then overflows."""
        return (args[0] * 5e4 if self.i >= STEP else args[0],)

    def step(self) -> float:
        """One step."""
        signal = torch.randn(64, 4) @ self.mix
        if self.i == STEP and KIND == "lr_jump":
            self.opt.param_groups[0]["lr"] = 3.0
        if self.i == STEP and KIND == "w_scale":
            self.net.get_parameter(LAYER).data *= 40
        with torch.autocast("cpu", dtype=torch.float16):
            out = self.net(signal)
        loss = (out.float() - signal).square().mean()
        if KIND == "fp16_loss" and self.i >= STEP:
            loss = loss * 1e13
        self.opt.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.opt)
        self.scaler.update()
        self.i += 1
        return loss.item()


session = Session()
for n in range(LOOPS):
    value = session.step()
    if n % 32 == 0 or n == LOOPS - 1:
        print(f"{n} {value:.4f} {session.scaler.get_scale()}")
