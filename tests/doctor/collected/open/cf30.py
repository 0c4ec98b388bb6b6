"""Brightness-invariant image embeddings from a timm-style model (forward_features / forward_head)."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(29)


class MBConv(nn.Module):
    def __init__(self, c, expand=2):
        super().__init__()
        self.conv_pw = nn.Conv2d(c, c * expand, 1)
        self.conv_dw = nn.Conv2d(c * expand, c * expand, 3, padding=1, groups=c * expand)
        self.conv_pwl = nn.Conv2d(c * expand, c, 1)

    def forward(self, x):
        y = F.silu(self.conv_dw(F.silu(self.conv_pw(x))))
        return x + self.conv_pwl(y)


class EfficientNet(nn.Module):
    def __init__(self, c=16, classes=8):
        super().__init__()
        self.conv_stem = nn.Conv2d(3, c, 3, 2, 1)
        self.blocks = nn.Sequential(MBConv(c), MBConv(c))
        self.classifier = nn.Linear(c, classes)

    def forward_features(self, x):
        return self.blocks(F.silu(self.conv_stem(x)))

    def forward_head(self, x):
        return self.classifier(x.mean((2, 3)))

    def forward(self, x):
        return self.forward_head(self.forward_features(x))


def standardise(module, args):
    """Every image gets zero mean and unit variance before the network sees it."""
    x = args[0]
    mean = x.mean((1, 2, 3), keepdim=True)
    std = x.std((1, 2, 3), keepdim=True)
    return ((x - mean) / (std + 1e-6),)


@torch.no_grad()
def embed(model, x):
    feats = model.forward_features(x)
    return F.normalize(feats.mean((2, 3)), dim=1)


model = EfficientNet().eval()
model.register_forward_pre_hook(standardise)

images = torch.rand(20, 3, 32, 32)
darker = 0.4 * images
brighter = 0.6 * images + 0.4

with torch.no_grad():
    same = (model(images).argmax(1) == model(darker).argmax(1)).float().mean().item()
print(f"classes unchanged in the dark: {same:.2f}")

ref = embed(model, images)
for tag, variant in (("darker", darker), ("brighter", brighter)):
    emb = embed(model, variant)
    sim = (emb * ref).sum(1)
    hits = ((emb @ ref.T).argmax(1) == torch.arange(len(ref))).float().mean().item()
    print(f"{tag}: similarity to the original {sim.mean().item():.4f} (worst {sim.min().item():.4f}), retrieval {hits:.2f}")
