"""Temporal convolution network that learns a nonlinear filter; each update adds up four micro-batches."""
import json
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
SPEC = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = SPEC.get("kind", ""), SPEC.get("step", 0), SPEC.get("layer", "")
ACCUM, UPDATES, CH = 3, 112, 16


class CausalBlock(nn.Module):
    def __init__(self, dilation, tag):
        super().__init__()
        self.pad, self.tag = 2 * dilation, tag
        self.conv = nn.Conv1d(CH, CH, 3, dilation=dilation)
        self.mix = nn.Conv1d(CH, CH, 1)
        self.update = 0

    def broken(self, kind):
        return kind == KIND and self.tag == LAYER and self.update >= STEP

    def forward(self, x):
        if KIND == "sigmoid_stack":
            return torch.sigmoid(self.mix(torch.sigmoid(self.conv(F.pad(x, (self.pad, 0))))))
        h = self.conv(F.pad(x, (self.pad, 0)))
        if self.broken("fwd_log"):
            h = torch.log(h)
        h = F.leaky_relu(h, 0.1)
        if self.broken("bwd_sqrt"):
            h = h + torch.sqrt((h - h).abs())
        h = self.mix(h)
        if self.broken("detach_block"):
            h = h.data
        return x + h


class TCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Conv1d(2, CH, 1)
        self.blocks = nn.ModuleList([CausalBlock(2 ** (i % 3), f"blocks.{i}") for i in range(5)])
        self.out = nn.Conv1d(CH, 1, 1)

    def forward(self, series):
        x = self.inp(series)
        for block in self.blocks:
            x = block(x)
        return self.out(x)[:, 0]


def micro_batch(n=8, length=24):
    s = torch.randn(n, 2, length)
    y = torch.zeros(n, length)
    y[:, 3:] = s[:, 0, 3:] + s[:, 1, :-3] * 1.5 + torch.tanh(2 * s[:, 0, 2:-1])
    return s, y


def one_update(net, opt, update):
    for block in net.blocks:
        block.update = update
    for g in opt.param_groups:
        if KIND == "lr_spike":
            g["lr"] = 6e-3 * (400 if update == STEP else 1)
        if KIND == "lr_nan" and update == STEP:
            g["lr"] = float("nan")
    opt.zero_grad()
    total = 0.0
    for micro in range(ACCUM):
        series, y = micro_batch()
        hit = update == STEP and micro == 2
        if hit and KIND == "data_nan":
            series[0, 1, 4] = float("nan")
        if hit and KIND == "batch_scale":
            series = series * 15
        out = net(series)
        if hit and KIND == "loss_div":
            valid = series[:, 0] > 1e6
            loss = ((out - y) ** 2)[valid].mean() / ACCUM
        else:
            loss = F.mse_loss(out, y) / ACCUM
        loss.backward()
        total += loss.item()
    if KIND == "grad_hook" and update == STEP:
        net.get_parameter(LAYER).grad.mul_(2e4)
    opt.step()
    return total


def main():
    torch.manual_seed(SPEC.get("seed", 0))
    net = TCN()
    left_out = list(net.get_submodule(LAYER).parameters()) if KIND == "not_in_opt" else []
    params = [p for p in net.parameters() if not any(p is q for q in left_out)]
    opt = torch.optim.AdamW(params, lr=1.5 if KIND == "lr_high" else 6e-3)
    for update in range(UPDATES):
        total = one_update(net, opt, update)
        if update % 24 == 0 or update == UPDATES - 1:
            print(f"update {update}: mse {total:.4f}")


if __name__ == "__main__":
    main()
