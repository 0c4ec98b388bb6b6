"""FitNets-style distillation: the student mimics a hooked layer of the teacher."""
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


def net(width):
    return nn.Sequential(nn.Linear(8, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, 2))


class Distiller(nn.Module):
    def __init__(self, teacher, student):
        super().__init__()
        self.teacher = teacher.eval().requires_grad_(False)
        self.student = student
        self.adapter = nn.Linear(16, 64)
        self.hint = {}
        teacher[3].register_forward_hook(self.save("t"))
        student[3].register_forward_hook(self.save("s"))

    def save(self, key):
        def hook(module, args, output):
            self.hint[key] = output
        return hook

    def forward(self, x):
        with torch.no_grad():
            self.teacher(x)
        logits = self.student(x)
        return logits, (self.adapter(self.hint["s"]) - self.hint["t"]).pow(2).mean()


teacher = net(64)
for _ in range(100):
    teacher(torch.randn(64, 8))
distiller = Distiller(teacher, net(16))
probe = torch.randn(32, 8)


def teacher_hint():
    distiller(probe)
    return distiller.hint["t"].clone()


h0 = teacher_hint()
stats0 = teacher[1].running_mean.clone()
params = [p for p in distiller.parameters() if p.requires_grad]
opt = torch.optim.Adam(params, lr=1e-2)
for epoch in range(3):
    distiller.train()
    for _ in range(40):
        x = torch.randn(64, 8) + 1.0
        logits, hint_loss = distiller(x)
        loss = nn.functional.cross_entropy(logits, (x[:, 0] > 1).long()) + hint_loss
        opt.zero_grad(); loss.backward(); opt.step()
    print(f"epoch {epoch}: hint loss {hint_loss.item():.4f}, two hints of the same input differ by "
          f"{(teacher_hint() - teacher_hint()).abs().max():.4f}")
distiller.eval()
print(f"frozen teacher, before and after: hints differ by {(teacher_hint() - h0).abs().max():.4f}, "
      f"running mean by {(teacher[1].running_mean - stats0).abs().max():.4f}")
