"""LSTM and GRU layers learn the sum of two marked numbers in a sequence (Adam)."""

import copy
import json
import os

import torch
from torch import nn

torch.set_num_threads(1)
FAULT = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = FAULT.get("kind", ""), FAULT.get("step", 0), FAULT.get("layer", "")
torch.manual_seed(FAULT.get("seed", 0))
HIDDEN, LENGTH, STEPS = 32, 12, 150
counter = 0


class Recurrent(nn.Module):
    """One recurrent layer with a residual connection and a norm."""

    def __init__(self, kind: type[nn.Module], name: str) -> None:
        super().__init__()
        self.name = name
        self.cell = kind(HIDDEN, HIDDEN, batch_first=True)
        self.mix = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, _ = self.cell(x)
        h = self.mix(h)
        if self.name == LAYER and counter >= STEP:
            if KIND == "fwd_mask_mean":
                lengths = torch.zeros(len(x))
                h = h - h.cumsum(1)[:, :1] * 0 / lengths[:, None, None]
            if KIND == "bwd_where":
                d = h - h.detach()
                h = h + torch.where(d > 0, d.pow(0.5), 0.0 * d)
            if KIND == "dropout_one":
                h = nn.functional.dropout(h, p=min(1.0, 0.01 * (counter + 1000)))
        return x + h


class SequenceModel(nn.Module):
    """Linear input, three recurrent layers, linear output."""

    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Linear(2, HIDDEN)
        self.rnn0 = Recurrent(nn.LSTM, "rnn0")
        self.rnn1 = Recurrent(nn.GRU, "rnn1")
        self.rnn2 = Recurrent(nn.LSTM, "rnn2")
        self.out = nn.Linear(HIDDEN, 1)
        self.confidence = nn.Linear(HIDDEN, 1) if KIND == "unused_head" else nn.Identity()

    def forward(self, seq: torch.Tensor) -> torch.Tensor:
        h = self.rnn2(self.rnn1(self.rnn0(self.inp(seq))))
        return self.out(h[:, -1]).squeeze(-1)


def task(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum of the marked values."""
    value = torch.rand(n, LENGTH) * 2 - 1
    mark = torch.zeros(n, LENGTH)
    mark.scatter_(1, torch.rand(n, LENGTH).argsort(1)[:, :2], 1.0)
    return torch.stack([value, mark], -1), (value * mark).sum(1)


def wound(model: nn.Module, optimizer: torch.optim.Optimizer, seq: torch.Tensor, y: torch.Tensor) -> None:
    """Damage at the chosen step."""
    if KIND == "data_nan":
        seq[0, 5:, 0] = torch.tensor(float("nan"))
    if KIND == "data_inf":
        seq[:, :, 0].div_(seq[:, :1, 0] * 0)
    if KIND == "batch_scale":
        seq[..., 0] *= 5000
    if KIND == "batch_labels":
        y.mul_(50.0)
    if KIND == "lr_jump":
        optimizer.param_groups[0]["lr"] = 1.0
    if KIND == "w_reinit":
        nn.init.normal_(model.get_parameter(LAYER), std=4.0)
    if KIND == "opt_state":
        for state in optimizer.state.values():
            state["exp_avg_sq"].zero_()


model = SequenceModel()
owner = copy.deepcopy(model) if KIND == "wrong_model" else model
chosen = []
for child_name, child in owner.named_children():
    if KIND == "not_in_opt" and child_name == LAYER:
        continue
    chosen += list(child.parameters())
optimizer = torch.optim.Adam(chosen, lr=3.0 if KIND == "lr_high" else 5e-3)
for counter in range(STEPS):
    seq, y = task(48)
    if KIND == "labels_random":
        y = torch.randn(len(y))
    if counter == STEP:
        wound(model, optimizer, seq, y)
    loss = (model(seq) - y).pow(2).mean()
    model.zero_grad()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5e-4 if KIND == "clip_small" else 5.0)
    optimizer.step()
    if counter % 30 == 0 or counter == STEPS - 1:
        print("step", counter, "mse", f"{loss.item():.5f}")
