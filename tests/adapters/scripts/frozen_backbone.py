import torch
from torch import nn, optim

torch.set_num_threads(1)
torch.manual_seed(1234)


class ConvBackbone(nn.Module):
    """Stand-in for an ImageNet feature extractor."""

    def __init__(self, channels=(3, 12, 24)):
        super().__init__()
        stages = []
        for c_in, c_out in zip(channels[:-1], channels[1:]):
            stages.append(
                nn.Sequential(
                    nn.Conv2d(c_in, c_out, kernel_size=3, stride=2, padding=1, bias=False),
                    nn.BatchNorm2d(c_out),
                    nn.ReLU(inplace=True),
                )
            )
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(2)

    def forward(self, x):
        return torch.flatten(self.pool(self.stages(x)), 1)


class FineTuneModel(nn.Module):
    def __init__(self, backbone, feat_dim, num_classes):
        super().__init__()
        self.backbone = backbone
        self.classifier = nn.Sequential(nn.Linear(feat_dim, 32), nn.ReLU(), nn.Linear(32, num_classes))

    def forward(self, x):
        return self.classifier(self.backbone(x))

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()  # keep the batch norm statistics
        return self


def load_pretrained_backbone():
    backbone = ConvBackbone()
    with torch.no_grad():  # running statistics of "pretraining" images
        for _ in range(5):
            backbone(torch.randn(16, 3, 16, 16))
    return backbone


def make_images(n, num_classes=3):
    y = torch.randint(0, num_classes, (n,))
    x = 0.5 * torch.randn(n, 3, 16, 16)
    x[torch.arange(n), y] += 1.0  # class k has a brighter channel k
    return x, y


model = FineTuneModel(load_pretrained_backbone(), feat_dim=24 * 4, num_classes=3)
for param in model.backbone.parameters():
    param.requires_grad = False

images, labels = make_images(320)
criterion = nn.CrossEntropyLoss()
optimizer = optim.Adam(model.classifier.parameters(), lr=2e-3)
scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.5)

num_steps, batch_size = 40, 32
model.train()
for step in range(num_steps):
    lo = (step * batch_size) % len(images)
    xb, yb = images[lo:lo + batch_size], labels[lo:lo + batch_size]
    optimizer.zero_grad()
    loss = criterion(model(xb), yb)
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(f"[{step:03d}] loss={loss.item()!r}")

trainable = [p for p in model.parameters() if p.requires_grad]
print(f"trainable tensors: {len(trainable)}")
print(f"checksum {sum(p.detach().double().sum().item() for p in trainable)!r}")
