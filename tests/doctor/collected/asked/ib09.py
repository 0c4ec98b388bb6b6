"""Hint-based distillation: the student's middle layer learns to predict the teacher's."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


class Encoder(nn.Module):
    def __init__(self, width, depth, classes=4):
        super().__init__()
        layers = [nn.Linear(20, width), nn.Tanh()]
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.Tanh()]
        self.trunk = nn.Sequential(*layers)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.trunk(x))


class FeatureTap:
    def __init__(self, layer):
        self.value = None
        self.handle = layer.register_forward_hook(self._store)

    def _store(self, module, args, output):
        self.value = output.detach()

    def close(self):
        self.handle.remove()
        self.value = None


class HintTrainer:
    def __init__(self, teacher, student, teacher_width, student_width, lr=3e-3):
        self.teacher = teacher.eval()
        self.student = student
        self.adapter = nn.Linear(student_width, teacher_width)
        self.teacher_tap = FeatureTap(teacher.trunk)
        self.student_tap = FeatureTap(student.trunk)
        params = list(student.trunk.parameters()) + list(self.adapter.parameters())
        self.optimizer = torch.optim.Adam(params, lr=lr)

    def step(self, x):
        with torch.no_grad():
            self.teacher(x)
        self.student(x)
        loss = F.mse_loss(self.adapter(self.student_tap.value), self.teacher_tap.value)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def close(self):
        self.teacher_tap.close()
        self.student_tap.close()


def relative_change(before, after):
    diff = sum((after[k] - before[k]).pow(2).sum() for k in before)
    norm = sum(before[k].pow(2).sum() for k in before)
    return (diff / norm).sqrt().item()


def main():
    teacher = Encoder(width=48, depth=3)
    with torch.no_grad():
        for p in teacher.parameters():
            p.mul_(2.0)
    student = Encoder(width=16, depth=1)
    start = {k: v.clone() for k, v in student.trunk.state_dict().items()}

    trainer = HintTrainer(teacher, student, 48, 16)
    data = torch.randn(1024, 20)
    for epoch in range(15):
        order = torch.randperm(len(data))
        losses = [trainer.step(data[idx]) for idx in order.split(64)]
        if epoch % 7 == 0:
            print(f"epoch {epoch}: hint loss {sum(losses) / len(losses):.4f}")
    trainer.close()

    moved = relative_change(start, student.trunk.state_dict())
    print(f"student trunk moved by {moved:.3f} relative to its start")


if __name__ == "__main__":
    main()
