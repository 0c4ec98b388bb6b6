"""Mean-teacher training: the student's features are pulled towards the features of its EMA copy."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(5)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.body = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        h = F.relu(self.stem(x))
        h = F.relu(self.body(h))
        return self.head(h.mean((2, 3)))


class FeatureTap:
    """Keeps the newest output of some layers."""

    def __init__(self, model, layers):
        self.features = {}
        for name in layers:
            model.get_submodule(name).register_forward_hook(self.make_hook(name))

    def make_hook(self, name):
        def hook(module, args, output):
            self.features[name] = output
        return hook


class EMA:
    def __init__(self, model, decay=0.9):
        self.decay = decay
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for t, s in zip(self.model.parameters(), model.parameters()):
            t.lerp_(s, 1 - self.decay)


student = ConvNet()
student_tap = FeatureTap(student, ["stem", "body"])
teacher = EMA(student)
teacher_tap = FeatureTap(teacher.model, ["stem", "body"])
opt = torch.optim.SGD(student.parameters(), lr=0.1)

x = torch.randn(64, 1, 6, 6)
y = (x.mean((1, 2, 3)) > 0).long()
for step in range(6):
    xb, yb = x[step * 8:(step + 1) * 8], y[step * 8:(step + 1) * 8]
    logits = student(xb + 0.3 * torch.randn_like(xb))
    with torch.no_grad():
        teacher.model(xb)
    consistency = sum(
        F.mse_loss(student_tap.features[k], teacher_tap.features[k]) for k in ("stem", "body")
    )
    loss = F.cross_entropy(logits, yb) + 0.5 * consistency
    opt.zero_grad()
    loss.backward()
    opt.step()
    teacher.update(student)
    print(f"step {step} loss {loss.item():.4f} consistency {consistency.item():.4f}")
