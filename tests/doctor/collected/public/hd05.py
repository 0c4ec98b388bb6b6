"""Mean teacher with a feature consistency term for few labels."""
import copy

import torch
from torch import nn
import torch.nn.functional as F


class Classifier(nn.Module):
    def __init__(self, inputs=20, width=48, classes=4):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.Tanh()
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.encoder(x))


def tap(module):
    features = {}

    def store(module, inputs, output):
        features["out"] = output

    module.register_forward_hook(store)
    return features


class MeanTeacher:
    def __init__(self, model, decay=0.98, weight=2.0):
        self.decay = decay
        self.weight = weight
        self.student = model
        self.student_features = tap(self.student.encoder)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.teacher_features = tap(self.teacher.encoder)
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=0.1, momentum=0.9)

    @torch.no_grad()
    def update_teacher(self):
        for slow, fast in zip(self.teacher.parameters(), self.student.parameters()):
            slow.lerp_(fast, 1.0 - self.decay)

    def step(self, labelled, labels, unlabelled):
        noisy = unlabelled + 0.3 * torch.randn_like(unlabelled)
        supervised = F.cross_entropy(self.student(labelled), labels)
        self.student(noisy)
        with torch.no_grad():
            self.teacher(unlabelled)
        consistency = F.mse_loss(self.student_features["out"], self.teacher_features["out"])
        loss = supervised + self.weight * consistency
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.update_teacher()
        return supervised.item(), consistency.item()


def make_blobs(count, centers, spread=1.4):
    labels = torch.randint(0, len(centers), (count,))
    return centers[labels] + spread * torch.randn(count, centers.shape[1]), labels


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    centers = torch.randn(4, 20)
    labelled, labels = make_blobs(80, centers)
    unlabelled, _ = make_blobs(2000, centers)
    test_x, test_y = make_blobs(1000, centers)

    trainer = MeanTeacher(Classifier())
    for epoch in range(4):
        supervised, consistency = [], []
        for rows in torch.randperm(len(unlabelled)).split(100):
            picks = torch.randint(0, len(labelled), (40,))
            losses = trainer.step(labelled[picks], labels[picks], unlabelled[rows])
            supervised.append(losses[0])
            consistency.append(losses[1])
        print(
            f"epoch {epoch}: supervised {sum(supervised) / len(supervised):.4f} "
            f"consistency {sum(consistency) / len(consistency):.4f}"
        )
    with torch.no_grad():
        accuracy = (trainer.teacher(test_x).argmax(1) == test_y).float().mean()
    print(f"accuracy of the teacher: {accuracy:.3f}")


if __name__ == "__main__":
    main()
