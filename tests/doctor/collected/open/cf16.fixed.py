"""Feature distillation targets from a compiled teacher."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(15)


class Teacher(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return self.fc(x.mean((2, 3)))


class Student(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 5, stride=2, padding=2)
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        h = self.conv(x)
        return self.fc(F.relu(h).mean((2, 3))), h


class Capture:
    def __init__(self, layer):
        self.value = None
        layer.register_forward_hook(self.hook)

    def hook(self, module, args, out):
        self.value = out.detach()


teacher = Teacher().eval()
capture = Capture(teacher.conv2)
fast_teacher = torch.compile(teacher, backend="eager", fullgraph=True)

student = Student()
opt = torch.optim.Adam(student.parameters(), lr=0.01)
used = 0
for step in range(8):
    x = torch.randn(6, 3, 12, 12)
    with torch.no_grad():
        t_logits = fast_teacher(x)
    s_logits, s_feat = student(x)
    loss = F.kl_div(s_logits.log_softmax(1), t_logits.softmax(1), reduction="batchmean")
    feat_loss = torch.zeros(())
    if capture.value is not None:
        feat_loss = F.mse_loss(s_feat, capture.value)
        used += 1
    opt.zero_grad()
    (loss + feat_loss).backward()
    opt.step()
    if step % 4 == 3:
        print(f"step {step} kd {loss.item():.4f} feature term {feat_loss.item():.4f}")
print(f"teacher features used in {used} of 8 steps")
