"""Mean teacher for depth estimation, with a consistency loss on decoder features."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(13)
torch.set_num_threads(1)


class DepthNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.ELU(),
            nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ELU(),
        )
        self.fusion = nn.Sequential(nn.Conv2d(2 * width, width, 3, 1, 1), nn.ELU())
        self.head = nn.Conv2d(width, 1, 3, 1, 1)

    def forward(self, x):
        x = self.fusion(self.encoder(x))
        x = F.interpolate(x, scale_factor=4, mode="bilinear", align_corners=False)
        return self.head(x)


def keep_features(store, name):
    def hook(module, inputs, output):
        store[name] = output
    return hook


class MeanTeacher:
    def __init__(self, decay=0.9, feature_weight=0.1):
        self.features = {}
        self.student = DepthNet()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.student.fusion.register_forward_hook(keep_features(self.features, "student"))
        self.teacher.fusion.register_forward_hook(keep_features(self.features, "teacher"))
        self.decay = decay
        self.feature_weight = feature_weight
        self.optimizer = torch.optim.Adam(self.student.parameters(), lr=1e-2)

    def step(self, labelled, depth, unlabelled):
        supervised = F.l1_loss(self.student(labelled), depth)

        noisy = unlabelled + 0.3 * torch.randn_like(unlabelled)
        prediction = self.student(noisy)
        with torch.no_grad():
            pseudo = self.teacher(unlabelled)
        consistency = F.mse_loss(self.features["student"], self.features["teacher"])
        loss = supervised + 0.2 * F.l1_loss(prediction, pseudo) + self.feature_weight * consistency

        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.update_teacher()
        return supervised.item(), consistency.item()

    @torch.no_grad()
    def update_teacher(self):
        for t, s in zip(self.teacher.parameters(), self.student.parameters()):
            t.lerp_(s, 1 - self.decay)


def scenes(n):
    """Brightness falls off with the distance of a slanted plane."""
    ys, xs = torch.meshgrid(torch.linspace(0, 1, 32), torch.linspace(0, 1, 32), indexing="ij")
    slope = torch.rand(n, 2, 1, 1)
    depth = (1 + slope[:, :1] * ys + slope[:, 1:] * xs)
    images = (1.5 / depth).expand(n, 3, 32, 32) + 0.05 * torch.randn(n, 3, 32, 32)
    return images, depth


def main():
    trainer = MeanTeacher()
    history = []
    for step in range(60):
        labelled, depth = scenes(4)
        unlabelled, _ = scenes(8)
        supervised, consistency = trainer.step(labelled, depth, unlabelled)
        history.append(consistency)
        if step % 20 == 19:
            print(f"step {step + 1}: supervised {supervised:.4f}, feature consistency {consistency:.5f}")

    images, depth = scenes(32)
    with torch.no_grad():
        clean = F.l1_loss(trainer.teacher(images), depth).item()
        noisy = F.l1_loss(trainer.teacher(images + 0.3 * torch.randn_like(images)), depth).item()
    trainer.features.clear()
    print(f"mean feature consistency loss {sum(history) / len(history):.5f}")
    print(f"teacher error: clean {clean:.4f}, noisy {noisy:.4f}")


if __name__ == "__main__":
    main()
