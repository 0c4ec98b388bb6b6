"""Load an old checkpoint in which the normalisation parameters were still called gamma and beta."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(26)


class LayerNorm2d(nn.Module):
    """Channel layer norm; accepts the parameter names of earlier releases."""

    RENAMED = {"gamma": "weight", "beta": "bias"}

    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(c))
        self.bias = nn.Parameter(torch.zeros(c))
        self.register_load_state_dict_pre_hook(self.upgrade)

    @staticmethod
    def upgrade(module, state_dict, prefix, *args):
        for old, new in LayerNorm2d.RENAMED.items():
            if prefix + old in state_dict:
                state_dict[prefix + new] = state_dict.pop(prefix + old)

    def forward(self, x):
        x = F.layer_norm(x.permute(0, 2, 3, 1), self.weight.shape, self.weight, self.bias)
        return x.permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.dw = nn.Conv2d(c, c, 7, padding=3, groups=c)
        self.norm = LayerNorm2d(c)
        self.pw1, self.pw2 = nn.Conv2d(c, 4 * c, 1), nn.Conv2d(4 * c, c, 1)

    def forward(self, x):
        return x + self.pw2(F.gelu(self.pw1(self.norm(self.dw(x)))))


class Net(nn.Module):
    def __init__(self, c=8, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 4, 4)
        self.blocks = nn.Sequential(ConvNeXtBlock(c), ConvNeXtBlock(c))
        self.fc = nn.Linear(c, classes)

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


def old_checkpoint(model):
    """What the previous release would have written for this model."""
    out = {}
    for k, v in model.state_dict().items():
        if ".norm." in k:
            k = k.replace("norm.weight", "norm.gamma").replace("norm.bias", "norm.beta")
        out[k] = v.clone()
    return out


trained = Net().eval()
with torch.no_grad():
    for m in trained.modules():
        if isinstance(m, LayerNorm2d):
            m.weight.uniform_(0.2, 2.0)
            m.bias.normal_(0, 0.5)

fresh = Net().eval()
# strict=False: the classifier may have another number of classes
result = fresh.load_state_dict(old_checkpoint(trained), strict=False)
x = torch.randn(16, 3, 16, 16)
with torch.no_grad():
    a, b = trained(x), fresh(x)
print(f"not found: {len(result.missing_keys)}, left over: {len(result.unexpected_keys)}")
print(f"norm scale of block 0: {fresh.blocks[0].norm.weight.mean().item():.4f}")
print(f"logit difference {(a - b).abs().max().item():.4f}, same class {(a.argmax(1) == b.argmax(1)).float().mean().item():.2f}")
