"""Self-distillation: the student follows the features of a slowly moving teacher."""
import copy

import torch
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(10, 32)
        self.mid = nn.Linear(32, 32)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = torch.relu(self.mid(x))
        return self.head(x)


def capture(model, layers=("stem", "mid")):
    """Return a dict that always holds the latest output of the given layers."""
    feats = {}

    def saver(name):
        def hook(module, args, out):
            feats[name] = out
        return hook

    for name in layers:
        getattr(model, name).register_forward_hook(saver(name))
    return feats


@torch.no_grad()
def ema_update(teacher, student, decay=0.9):
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.lerp_(s, 1 - decay)


def main():
    torch.manual_seed(0)
    student = Net()
    student_feats = capture(student)
    teacher = copy.deepcopy(student).requires_grad_(False)
    teacher_feats = capture(teacher)

    opt = torch.optim.SGD(student.parameters(), lr=0.1)
    x = torch.randn(64, 10)
    y = x[:, :3].argmax(dim=1)
    for step in range(6):
        noisy = x + 0.2 * torch.randn_like(x)
        logits = student(noisy)
        with torch.no_grad():
            teacher(x)
        task = nn.functional.cross_entropy(logits, y)
        feat = sum(nn.functional.mse_loss(student_feats[k], teacher_feats[k]) for k in teacher_feats)
        loss = task + 2.0 * feat
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema_update(teacher, student)
        print(f"step {step}  task {task.item():.4f}  feature {feat.item():.4f}")


if __name__ == "__main__":
    main()
