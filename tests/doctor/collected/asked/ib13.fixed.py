"""Mean-teacher training with a consistency term on the intermediate representation."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self, inputs=16, hidden=32, classes=3):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.head = nn.Linear(hidden, classes)
        self.features = {}
        self.encoder.register_forward_hook(self._save_features)

    def _save_features(self, module, args, output):
        self.features["encoder"] = output

    def forward(self, x):
        logits = self.head(self.encoder(x))
        return logits, self.features["encoder"]


class MeanTeacher:
    def __init__(self, student, decay=0.95, weight=0.5):
        self.student = student
        self.teacher = copy.deepcopy(student)
        self.teacher.requires_grad_(False)
        self.decay = decay
        self.weight = weight
        self.optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)

    @torch.no_grad()
    def update_teacher(self):
        for t, s in zip(self.teacher.parameters(), self.student.parameters()):
            t.lerp_(s, 1 - self.decay)

    def step(self, x, y):
        logits, features = self.student(x + 0.1 * torch.randn_like(x))
        with torch.no_grad():
            _, target = self.teacher(x)
        consistency = F.mse_loss(features, target)
        loss = F.cross_entropy(logits, y) + self.weight * consistency
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.update_teacher()
        return loss.item(), consistency.item(), target


def make_data(count):
    centers = torch.randn(3, 16, generator=torch.Generator().manual_seed(8))
    labels = torch.randint(0, 3, (count,))
    return centers[labels] + torch.randn(count, 16), labels


def main():
    x, y = make_data(640)
    model = Net()
    with torch.no_grad():
        _, sample = model(x[:64])
    print(f"representation: {sample.shape[1]} features")

    method = MeanTeacher(model)
    previous = sample
    for epoch in range(4):
        stats, drift = [], []
        for xb, yb in zip(x.split(64), y.split(64)):
            loss, consistency, target = method.step(xb, yb)
            stats.append((loss, consistency))
            drift.append((target - previous).abs().mean().item())
            previous = target
        loss, consistency = (sum(s) / len(s) for s in zip(*stats))
        change = sum(drift) / len(drift)
        print(
            f"epoch {epoch}: loss {loss:.3f} consistency {consistency:.4f} "
            f"teacher features differ between batches by {change:.3f}"
        )


if __name__ == "__main__":
    main()
