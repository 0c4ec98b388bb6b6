"""Mean-teacher training on few labels: the student's hidden features follow the teacher's.

The teacher is an exponential moving average of the student. Hidden features of both
networks are collected by name while they run.
"""
import copy

import torch
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(20, 48), nn.ReLU())
        self.mid = nn.Sequential(nn.Linear(48, 32), nn.ReLU())
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.mid(self.stem(x)))


def collect(model, names):
    feats = {}

    def saver(name):
        def hook(module, args, out):
            feats[name] = out
        return hook

    for name in names:
        model.get_submodule(name).register_forward_hook(saver(name))
    return feats


@torch.no_grad()
def update_teacher(teacher, student, decay):
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.lerp_(s, 1 - decay)


def make_data(n=900):
    g = torch.Generator().manual_seed(6)
    centres = torch.randn(3, 20, generator=g)
    y = torch.randint(0, 3, (n,), generator=g)
    return centres[y] + 1.6 * torch.randn(n, 20, generator=g), y


def main():
    torch.manual_seed(0)
    x, y = make_data()
    labelled = torch.arange(24)
    student = Net()
    student_feats = collect(student, ["stem", "mid"])
    teacher = copy.deepcopy(student).requires_grad_(False)
    teacher_feats = collect(teacher, ["stem", "mid"])
    opt = torch.optim.Adam(student.parameters(), lr=2e-3)
    consistency = []
    for step in range(150):
        idx = torch.randint(0, 700, (64,))
        clean = x[idx]
        noisy = clean + 1.0 * torch.randn_like(clean)
        student(noisy)
        with torch.no_grad():
            teacher(clean)
        follow = sum(nn.functional.mse_loss(student_feats[k], teacher_feats[k]) for k in ("stem", "mid"))
        supervised = nn.functional.cross_entropy(student(x[labelled]), y[labelled])
        loss = supervised + 0.5 * follow
        opt.zero_grad()
        loss.backward()
        opt.step()
        update_teacher(teacher, student, decay=0.95)
        consistency.append(follow.item())
    with torch.no_grad():
        acc = (teacher(x[700:]).argmax(1) == y[700:]).float().mean().item()
    print(f"teacher accuracy on unseen data {acc:.3f}")
    print(f"mean consistency loss of the last 50 steps: {sum(consistency[-50:]) / 50:.6f}")


if __name__ == "__main__":
    main()
