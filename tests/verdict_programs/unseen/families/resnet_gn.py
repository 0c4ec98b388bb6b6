"""Residual network with GroupNorm for striped images; SGD with momentum and a cosine schedule."""
import json
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR

torch.set_num_threads(1)
fault = json.loads(os.environ.get("FAULT", "{}"))
KIND, WHEN, WHERE = fault.get("kind", ""), fault.get("step", 0), fault.get("layer", "")
torch.manual_seed(fault.get("seed", 0))


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1, self.gn1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.GroupNorm(4, cout)
        self.conv2, self.gn2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.GroupNorm(4, cout)
        self.short = nn.Conv2d(cin, cout, 1, stride, bias=False) if stride > 1 else nn.Identity()
        self.active = ""

    def forward(self, x):
        if self.active == "grad_shrink":
            x = 1e-7 * x + (x - 1e-7 * x).detach()
        h = torch.relu(self.gn1(self.conv1(x)))
        if self.active == "fwd_exp":
            h = h * (h * 200).exp()
        h = self.gn2(self.conv2(h))
        if self.active == "bwd_where":
            h = torch.where(h > 0, (h * (h > 0)).pow(0.75), h)
        return torch.relu(h + self.short(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, padding=1)
        self.layer1 = nn.Sequential(BasicBlock(12, 12, 1), BasicBlock(12, 12, 1))
        self.layer2 = nn.Sequential(BasicBlock(12, 24, 2), BasicBlock(24, 24, 1))
        self.fc = nn.Linear(24, 5)

    def forward(self, pictures):
        x = self.layer2(self.layer1(torch.relu(self.stem(pictures))))
        return self.fc(x.mean((2, 3)))


def stripes(n=24, size=10):
    y = torch.randint(5, (n,))
    angle = y.float() * 0.6283
    t = torch.arange(size).float()
    phase = angle.cos()[:, None, None] * t[None, :, None] + angle.sin()[:, None, None] * t[None, None]
    x = torch.sin(1.6 * phase + 6 * torch.rand(n, 1, 1))[:, None] * torch.tensor([1.0, 0.5, -0.7])[:, None, None]
    return x + 0.5 * torch.randn(n, 3, size, size), y


def accident(net, opt, sched):
    if KIND in ("fwd_exp", "bwd_where"):
        net.get_submodule(WHERE).active = KIND
    if KIND == "param_nan":
        with torch.no_grad():
            net.get_parameter(WHERE).view(-1)[::7] = float("nan")
    if KIND == "lr_jump":
        sched.base_lrs = [b * 400 for b in sched.base_lrs]
        opt.param_groups[0]["lr"] *= 400
    if KIND == "w_reinit":
        w = net.get_parameter(WHERE)
        w.data.copy_(torch.randn(w.shape) * (3.0 if WHERE == "fc.weight" else 1.0))


net = ResNet()
if KIND == "grad_shrink":
    net.get_submodule(WHERE).active = KIND
if KIND == "frozen":
    [p.requires_grad_(False) for p in net.get_submodule(WHERE).parameters()]
opt = torch.optim.SGD(filter(lambda p: p.requires_grad, net.parameters()), lr=0.02, momentum=0.8, weight_decay=5e-4)
if KIND == "decay_sign":
    opt.param_groups[0]["weight_decay"] = -1.5
sched = CosineAnnealingLR(opt, T_max=230)
if KIND == "grad_hook":
    net.get_submodule(WHERE).register_full_backward_pre_hook(
        lambda m, g: (g[0] * 1e4,) if step == WHEN else None)
for step in range(112):
    pictures, y = stripes()
    if KIND == "labels_random":
        y = torch.randint(5, y.shape)
    if step == WHEN:
        if KIND == "data_inf":
            pictures[1, 2].div_(0.0)
            pictures[1, 2].abs_()
        if KIND == "batch_labels":
            y = (y + 2) % 5
        accident(net, opt, sched)
    loss = F.cross_entropy(net(pictures), y)
    opt.zero_grad()
    loss.backward()
    if KIND == "clip_small":
        nn.utils.clip_grad_norm_(net.parameters(), 2e-4)
    opt.step()
    sched.step()
    if step % 26 == 0 or step == 111:
        print("%d\t%.4f" % (step, loss.item()))
