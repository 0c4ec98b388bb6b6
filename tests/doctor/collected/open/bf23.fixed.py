"""Feature distillation: the student's middle layer should imitate the teacher's middle layer."""
import torch
from torch import nn

torch.manual_seed(25)


def mlp(width):
    return nn.Sequential(
        nn.Linear(10, width), nn.ReLU(),
        nn.Linear(width, 16),               # index 2: the layer that is compared
        nn.ReLU(), nn.Linear(16, 4))


class Tap:
    """Holds the latest output of one layer."""

    def __init__(self, layer):
        self.value = None
        self.handle = layer.register_forward_hook(self.save)

    def save(self, module, args, output):
        # a copy of our own, so that later layers cannot change it
        self.value = output.clone()


def train_teacher(teacher, x, y):
    opt = torch.optim.Adam(teacher.parameters(), lr=5e-3)
    for _ in range(80):
        opt.zero_grad()
        nn.functional.cross_entropy(teacher(x), y).backward()
        opt.step()
    teacher.eval().requires_grad_(False)


x = torch.randn(400, 10)
y = (x @ torch.randn(10, 4)).argmax(dim=1)
teacher, student = mlp(64), mlp(12)
train_teacher(teacher, x, y)

teacher_tap, student_tap = Tap(teacher[2]), Tap(student[2])
optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
mse = nn.functional.mse_loss

curve = []
for step in range(150):
    idx = torch.randint(0, 400, (80,))
    with torch.no_grad():
        teacher(x[idx])
    logits = student(x[idx])
    hint = mse(student_tap.value, teacher_tap.value)
    loss = 0.2 * nn.functional.cross_entropy(logits, y[idx]) + 5.0 * hint
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    curve.append(hint.item())
    if step % 50 == 49:
        print(f"step {step + 1}: total {loss.item():.3f}  hint {hint.item():.3f}")

ratio = curve[-1] / curve[0]
print(f"hint loss {curve[0]:.3f} -> {curve[-1]:.3f}")
print("student imitates the teacher's layer:", "yes" if ratio < 0.5 else "no")
