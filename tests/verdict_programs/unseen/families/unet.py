"""U-Net that segments noisy discs, written as a Trainer class."""
import json
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
fault = json.loads(os.environ.get("FAULT") or "{}")
kind, when, where = fault.get("kind", ""), fault.get("step", 0), fault.get("layer", "")
random.seed(fault.get("seed", 0))
torch.manual_seed(fault.get("seed", 0))


class DoubleConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.trouble = None

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        if self.trouble == "fwd_div":
            keep = torch.ones(len(x), 1, 1, 1)
            keep[len(x) // 2] = 0  # drop one sample
            x = x * keep
            x = x / x.amax((1, 2, 3), keepdim=True)
        if self.trouble == "bwd_sqrt":
            x = x ** 0.5
        return x


class UNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.down1, self.down2 = DoubleConv(1, c), DoubleConv(c, 2 * c)
        self.mid = DoubleConv(2 * c, 4 * c)
        self.t2, self.t1 = nn.ConvTranspose2d(4 * c, 2 * c, 2, 2), nn.ConvTranspose2d(2 * c, c, 2, 2)
        self.up2, self.up1 = DoubleConv(4 * c, 2 * c), DoubleConv(2 * c, c)
        self.out = nn.Conv2d(c, 1, 1)
        if kind == "unused_head":
            self.boundary = nn.Conv2d(c, 1, 3, padding=1)

    def forward(self, image):
        a = self.down1(image)
        b = self.down2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        u = self.up2(torch.cat([self.t2(m), b], 1))
        u = self.up1(torch.cat([self.t1(u), a], 1))
        return self.out(u)


def discs(n, size=16):
    grid = torch.arange(size).float()
    cx, cy, r = torch.rand(n) * 10 + 3, torch.rand(n) * 10 + 3, torch.rand(n) * 3 + 2
    d = (grid[None, :, None] - cx[:, None, None]) ** 2 + (grid[None, None, :] - cy[:, None, None]) ** 2
    mask = (d < r[:, None, None] ** 2).float()[:, None]
    return mask + 0.4 * torch.randn(n, 1, size, size), mask


class Trainer:
    def __init__(self, steps=112):
        self.model = UNet()
        self.optim = torch.optim.Adam(self.model.parameters(), lr=0.0 if kind == "lr_zero" else 3e-3)
        self.steps = steps
        if kind == "decay_sign":
            self.optim = torch.optim.AdamW(self.model.parameters(), lr=2e-3, weight_decay=0.01)
            self.optim.param_groups[0]["weight_decay"] = -70.0

    def loss(self, logits, mask, step):
        bce = F.binary_cross_entropy_with_logits(logits, mask)
        prob = logits.sigmoid()
        if kind == "loss_log" and step == when:
            hard = torch.sigmoid(logits * 1e4)
            bce = -(mask * hard.log() + (1 - mask) * torch.log1p(-hard)).mean()
        dice = 1 - (2 * (prob * mask).sum() + 1) / (prob.sum() + mask.sum() + 1)
        return bce + dice

    def tamper(self, step):
        group = self.optim.param_groups[0]
        if kind == "lr_spike":
            group["lr"] = 3.0 if step == when else 2e-3
        if step != when:
            return
        if kind == "lr_nan":
            group["lr"] = group["lr"] * float("nan")
        if kind in ("fwd_div", "bwd_sqrt"):
            self.model.get_submodule(where).trouble = kind
        if kind == "w_reinit":
            fresh = nn.init.orthogonal_(torch.empty_like(self.model.get_parameter(where)), gain=8.0)
            self.model.load_state_dict({where: fresh}, strict=False)
        if kind == "opt_state":
            for entry in self.optim.state_dict()["state"].values():
                entry["exp_avg_sq"].copy_(entry["exp_avg_sq"] * 1e-7)

    def fit(self):
        for step in range(self.steps):
            image, mask = discs(8)
            if step == when and kind == "data_nan":
                image[3, 0, 5:7] /= torch.zeros(2, 16)
                image[3, 0, 4] = torch.tensor(float("nan"))
            if step == when and kind == "batch_scale":
                image = 255.0 * image * (1 - 2 * mask)
            self.tamper(step)
            loss = self.loss(self.model(image), mask, step)
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
            if step % 30 == 0 or step + 1 == self.steps:
                print(f"[{step:03d}] {loss.item():.4f}")


Trainer().fit()
