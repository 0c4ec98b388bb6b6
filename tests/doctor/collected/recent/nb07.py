"""Mean-teacher training on few labels with a feature-matching term.

The teacher is an exponential moving average of the student.  The loss is cross-entropy
on the labelled images plus the distance between the mid-level features of student and
teacher on two noisy views of the unlabelled images.
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(6)
torch.set_num_threads(1)


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())


class Net(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.low = block(1, 8)
        self.mid = block(8, 16)
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        x = F.max_pool2d(self.low(x), 2)
        return self.head(self.mid(x).mean((2, 3)))


def tap(model, names):
    """Collect the outputs of the named sub-modules in a dictionary."""
    features = {}
    for name in names:
        def save(module, args, output, name=name):
            features[name] = output
        model.get_submodule(name).register_forward_hook(save)
    return features


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=g)
    x = 0.4 * torch.randn(n, 1, 12, 12, generator=g)
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
def update_teacher(teacher, student, decay):
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.lerp_(s, 1.0 - decay)
    for t, s in zip(teacher.buffers(), student.buffers()):
        t.copy_(s)


def main():
    xl, yl = make_data(24, seed=1)
    xu, _ = make_data(256, seed=2)
    xt, yt = make_data(256, seed=3)

    names = ["low", "mid"]
    student = Net()
    student_features = tap(student, names)
    teacher = copy.deepcopy(student).requires_grad_(False)
    teacher_features = tap(teacher, names)

    opt = torch.optim.Adam(student.parameters(), lr=5e-3)
    history = []
    for step in range(40):
        idx = torch.arange(step * 32, step * 32 + 32) % len(xu)
        supervised = F.cross_entropy(student(xl), yl)
        student(xu[idx] + 0.2 * torch.randn(32, 1, 12, 12))
        with torch.no_grad():
            teacher(xu[idx] + 0.2 * torch.randn(32, 1, 12, 12))
        matching = sum(F.mse_loss(student_features[n], teacher_features[n]) for n in names)
        loss = supervised + 0.5 * matching
        opt.zero_grad()
        loss.backward()
        opt.step()
        update_teacher(teacher, student, decay=0.9)
        history.append(matching.item())
        if step % 10 == 0:
            print(f"step {step:2d} supervised {supervised.item():.4f} matching {matching.item():.4f}")

    teacher.eval()
    with torch.no_grad():
        acc = (teacher(xt).argmax(1) == yt).float().mean().item()
    print(f"mean matching loss {sum(history) / len(history):.5f}, teacher accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
