"""Self-distillation with an averaged teacher that is a deep copy of a hooked student.

The model registers one of its own methods as a forward hook on its middle stage, so each
copy of the model writes to its own attribute.
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(22)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self, width=12, classes=3):
        super().__init__()
        self.low = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU())
        self.mid = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(width, classes)
        self.last = None
        self.mid.register_forward_hook(self.remember)

    def remember(self, module, args, output):
        self.last = output

    def forward(self, x):
        return self.head(self.mid(F.max_pool2d(self.low(x), 2)).amax((2, 3)))


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=g)
    x = 0.3 * torch.randn(n, 1, 12, 12, generator=g)
    for i, c in enumerate(y.tolist()):
        r = int(torch.randint(1, 8, (1,), generator=g))
        if c == 0:
            x[i, 0, r:r + 2, :] += 1.5
        elif c == 1:
            x[i, 0, :, r:r + 2] += 1.5
        else:
            x[i, 0, r:r + 4, r:r + 4] += 1.5
    return x, y


@torch.no_grad()
def average(teacher, student, decay):
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.lerp_(s, 1 - decay)


def main():
    xl, yl = make_data(32, seed=1)
    xu, _ = make_data(256, seed=2)
    xt, yt = make_data(256, seed=3)
    student = Net()
    teacher = copy.deepcopy(student).requires_grad_(False)

    opt = torch.optim.Adam(student.parameters(), lr=5e-3)
    matching = []
    for step in range(50):
        idx = torch.arange(step * 32, step * 32 + 32) % len(xu)
        supervised = F.cross_entropy(student(xl), yl)
        student(xu[idx] + 0.2 * torch.randn(32, 1, 12, 12))
        with torch.no_grad():
            teacher(xu[idx])
        distance = F.mse_loss(student.last, teacher.last)
        opt.zero_grad()
        (supervised + distance).backward()
        opt.step()
        average(teacher, student, decay=0.9)
        matching.append(distance.item())
        if step % 10 == 0:
            print(f"step {step:2d} supervised {supervised.item():.4f} distance {distance.item():.4f}")

    with torch.no_grad():
        acc = (teacher(xt).argmax(1) == yt).float().mean().item()
    print(f"teacher accuracy {acc:.3f}, mean distance {sum(matching) / len(matching):.4f}")
    print("separate maps:", student.last is not teacher.last)


if __name__ == "__main__":
    main()
