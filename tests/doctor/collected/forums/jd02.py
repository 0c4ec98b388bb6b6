"""Mean-teacher training with a sparse bottleneck."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


class Encoder(nn.Module):
    def __init__(self, dim=16, hidden=64, code=24, classes=4):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(dim, hidden), nn.GELU())
        self.bottleneck = nn.Sequential(nn.Linear(hidden, code), nn.Softplus())
        self.classifier = nn.Linear(code, classes)

    def forward(self, x):
        return self.classifier(self.bottleneck(self.trunk(x)))


class MeanTeacher:
    def __init__(self, student, decay=0.95, sparsity=0.3, consistency=0.5):
        self.student = student
        self.codes = {}
        student.bottleneck.register_forward_hook(self.keep_codes())
        self.teacher = copy.deepcopy(student)
        self.teacher.requires_grad_(False)
        self.decay = decay
        self.sparsity = sparsity
        self.consistency = consistency
        self.optimizer = torch.optim.Adam(student.parameters(), lr=5e-3)

    def keep_codes(self):
        codes = self.codes

        def hook(module, inputs, output):
            codes["bottleneck"] = output
        return hook

    def step(self, x, y):
        logits = self.student(x + 0.1 * torch.randn_like(x))
        target = self.teacher(x).softmax(dim=-1)
        loss = F.cross_entropy(logits, y)
        loss = loss + self.consistency * F.mse_loss(logits.softmax(dim=-1), target)
        loss = loss + self.sparsity * self.codes["bottleneck"].abs().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.update_teacher()
        return loss.item()

    @torch.no_grad()
    def update_teacher(self):
        for avg, new in zip(self.teacher.parameters(), self.student.parameters()):
            avg.lerp_(new, 1 - self.decay)


def make_data(n=512):
    centers = torch.randn(4, 16) * 2
    labels = torch.randint(0, 4, (n,))
    return centers[labels] + torch.randn(n, 16), labels


def main():
    inputs, labels = make_data()
    trainer = MeanTeacher(Encoder())
    for epoch in range(12):
        order = torch.randperm(len(inputs))
        losses = [trainer.step(inputs[i], labels[i]) for i in order.split(64)]
        if epoch % 4 == 3:
            print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
    student = trainer.student.eval()
    with torch.no_grad():
        code = student.bottleneck(student.trunk(inputs))
        acc = (student.classifier(code).argmax(1) == labels).float().mean()
    print(f"accuracy {acc:.3f}")
    print(f"mean code activation: {code.mean():.3f}")


if __name__ == "__main__":
    main()
