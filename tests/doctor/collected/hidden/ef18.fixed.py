"""Feature distillation between a student and a slowly moving copy of itself (mean teacher)."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, width=32, classes=4):
        super().__init__()
        self.low = nn.Sequential(nn.Linear(12, width), nn.ReLU())
        self.mid = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.mid(self.low(x)))


def tap(model, store, names):
    for name in names:
        def hook(module, args, output, name=name):
            store[name] = output
        model.get_submodule(name).register_forward_hook(hook)


@torch.no_grad()
def ema(teacher, student, decay=0.95):
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.mul_(decay).add_(s, alpha=1 - decay)


def main():
    torch.manual_seed(0)
    x = torch.randn(320, 12)
    y = (x[:, :4] + x[:, 4:8]).argmax(-1)
    names = ["low", "mid"]
    student = Net()
    s_feats, t_feats = {}, {}
    teacher = copy.deepcopy(student).requires_grad_(False).eval()
    tap(student, s_feats, names)
    tap(teacher, t_feats, names)
    opt = torch.optim.Adam(student.parameters(), lr=3e-3)
    for epoch in range(6):
        ce_sum = match_sum = 0.0
        for k in range(0, len(x), 64):
            xb, yb = x[k:k + 64], y[k:k + 64]
            noisy = xb + 0.3 * torch.randn_like(xb)
            logits = student(noisy)
            with torch.no_grad():
                teacher(xb)
            # the student's features under noise should look like the teacher's clean ones
            match = sum(F.mse_loss(s_feats[n], t_feats[n]) for n in names)
            ce = F.cross_entropy(logits, yb)
            loss = ce + 2.0 * match
            opt.zero_grad()
            loss.backward()
            opt.step()
            ema(teacher, student)
            ce_sum += ce.item()
            match_sum += float(match)
        print(f"epoch {epoch}: ce {ce_sum / 5:.4f} feature distance {match_sum / 5:.4f}")
    print("features pulled together:", 0 < match_sum)


if __name__ == "__main__":
    main()
