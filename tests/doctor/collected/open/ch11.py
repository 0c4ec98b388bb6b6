"""EMA of a student that learns from a teacher's features; statistics belong to the student only."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(10)


class Net(nn.Module):
    def __init__(self, width, classes=4):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, 8, 3, 2, 1))
        self.fc = nn.Linear(8, classes)

    def forward(self, x):
        return self.fc(F.relu(self.body(x)).mean((2, 3)))


class Tap:
    """Last output of one layer; the teacher's is detached, the student's keeps its graph."""

    def __init__(self, layer, detach):
        self.value, self.calls, self.detach = None, 0, detach
        self.layer, self.handle = layer, None

    def on(self):
        self.handle = self.layer.register_forward_hook(self._store)
        return self

    def off(self):
        self.handle.remove()

    def _store(self, module, args, out):
        self.value = out.detach() if self.detach else out
        self.calls += 1


teacher, student = Net(16).eval(), Net(4)
t_tap = Tap(teacher.body, detach=True).on()
# the copy is made before the student is instrumented, so the average carries no hooks
ema = copy.deepcopy(student).eval()
s_tap = Tap(student.body, detach=False).on()

opt = torch.optim.Adam(student.parameters(), lr=0.01)
first = None
for step in range(30):
    x = torch.randn(16, 1, 12, 12)
    with torch.no_grad():
        teacher(x)
    student(x)
    loss = F.mse_loss(s_tap.value, t_tap.value)
    first = first if first is not None else loss.item()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for e, p in zip(ema.parameters(), student.parameters()):
            e.lerp_(p, 0.2)
        ema(x)
s_tap.off()
t_tap.off()

print(f"feature loss {first:.4f} -> {loss.item():.4f}")
print("student calls", s_tap.calls, "teacher calls", t_tap.calls)
print("hooks on the average:", sum(len(m._forward_hooks) for m in ema.modules()))
print("classifier untouched by the feature loss:", student.fc.weight.grad is None)
assert s_tap.calls == t_tap.calls == 30 and loss.item() < first
