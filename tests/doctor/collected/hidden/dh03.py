"""Student and EMA teacher, both deep-copied from a hooked prototype; each gets its own store."""
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
        return self.head(torch.relu(self.mid(torch.relu(self.stem(x)))))


class Capture:
    """The copy of a hooked model carries a copy of this object; it is found through the hook itself."""

    def __init__(self):
        self.out = None

    def __call__(self, module, args, out):
        self.out = out


def capture_of(layer):
    return next(h for h in layer._forward_hooks.values() if isinstance(h, Capture))


@torch.no_grad()
def follow(teacher, student, decay=0.9):
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.lerp_(s, 1 - decay)


def main():
    torch.manual_seed(0)
    prototype = Net()
    prototype.mid.register_forward_hook(Capture())
    student = copy.deepcopy(prototype)
    teacher = copy.deepcopy(prototype).requires_grad_(False)
    s_cap, t_cap = capture_of(student.mid), capture_of(teacher.mid)
    assert s_cap is not t_cap

    opt = torch.optim.SGD(student.parameters(), lr=0.1)
    x = torch.randn(64, 10)
    y = x[:, :3].argmax(dim=1)
    for step in range(5):
        logits = student(x + 0.1 * torch.randn_like(x))
        with torch.no_grad():
            teacher(x)
        feat = nn.functional.mse_loss(s_cap.out, t_cap.out)
        loss = nn.functional.cross_entropy(logits, y) + feat
        opt.zero_grad()
        loss.backward()
        opt.step()
        follow(teacher, student)
        print(f"step {step} loss {loss.item():.4f} feature part {feat.item():.5f}")
    print("prototype was never run:", capture_of(prototype.mid).out is None)


if __name__ == "__main__":
    main()
