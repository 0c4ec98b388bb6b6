import copy

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(5)


class ConvNet(nn.Module):
    def __init__(self, channels=8, classes=4):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), nn.ReLU())
        self.body = nn.Sequential(
            nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1), nn.ReLU()
        )
        self.head = nn.Linear(2 * channels * 6 * 6, classes)

    def forward(self, x):
        x = self.body(self.stem(x))
        return self.head(x.flatten(1))


features = {}


def keep_features(key):
    def hook(module, args, output):
        features[key] = output

    return hook


def make_batch(n=32):
    labels = torch.randint(0, 4, (n,))
    images = 0.3 * torch.randn(n, 1, 12, 12)
    for i, label in enumerate(labels):
        row, col = divmod(int(label), 2)
        images[i, 0, 6 * row : 6 * row + 6, 6 * col : 6 * col + 6] += 1.0
    return images, labels


@torch.no_grad()
def update_teacher(teacher, student, decay=0.9):
    for slow, fast in zip(teacher.parameters(), student.parameters()):
        slow.mul_(decay).add_(fast, alpha=1 - decay)


def main():
    student = ConvNet()
    student_handle = student.body.register_forward_hook(keep_features("student"))
    teacher = copy.deepcopy(student)
    teacher_handle = teacher.body.register_forward_hook(keep_features("teacher"))
    teacher.requires_grad_(False)

    optimizer = torch.optim.Adam(student.parameters(), lr=5e-3)
    for step in range(40):
        images, labels = make_batch()
        noisy = images + 0.2 * torch.randn_like(images)

        logits = student(noisy)
        with torch.no_grad():
            teacher(images)
        class_loss = nn.functional.cross_entropy(logits, labels)
        feature_loss = nn.functional.mse_loss(features["student"], features["teacher"])
        loss = class_loss + 2.0 * feature_loss

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_teacher(teacher, student)
        if step % 10 == 9:
            print(f"step {step + 1}: class loss {class_loss.item():.3f}, feature loss {feature_loss.item():.5f}")

    student_handle.remove()
    teacher_handle.remove()
    features.clear()
    images, labels = make_batch(200)
    with torch.no_grad():
        accuracy = (teacher(images).argmax(dim=1) == labels).float().mean().item()
    print(f"teacher accuracy {accuracy:.2f}")


if __name__ == "__main__":
    main()
