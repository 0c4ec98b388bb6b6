"""APoZ (average percentage of zeros) inside residual blocks, to choose conv1 filters to prune."""
import torch
import torch.nn as nn

torch.manual_seed(2)


class BasicBlock(nn.Module):
    def __init__(self, c_in, c_out, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.down = None
        if stride != 1 or c_in != c_out:
            self.down = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out))

    def forward(self, x):
        identity = x if self.down is None else self.down(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + identity)


class ResNet(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.layer1 = nn.Sequential(BasicBlock(8, 8), BasicBlock(8, 8))
        self.layer2 = nn.Sequential(BasicBlock(8, 16, 2), BasicBlock(16, 16))
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        x = self.layer2(self.layer1(self.stem(x)))
        return self.fc(x.mean((2, 3)))


model = ResNet().eval()
with torch.no_grad():
    for block in model.modules():
        if isinstance(block, BasicBlock):
            # make some hidden channels clearly weaker than others
            block.bn1.bias.copy_(torch.linspace(-1.5, 0.5, block.bn1.num_features))

zeros, seen = {}, {}
for name, block in model.named_modules():
    if isinstance(block, BasicBlock):
        # the activation that conv2 receives
        def record(module, args, out, name=name):
            zeros[name] = (out == 0).float().mean((0, 2, 3))
            seen[name] = out.shape[0]

        block.conv2.register_forward_pre_hook(lambda m, args, name=name: record(m, args, args[0], name))

with torch.no_grad():
    for _ in range(3):
        model(torch.randn(8, 3, 16, 16))

for name, apoz in zeros.items():
    worst = apoz.topk(2).indices.tolist()
    print(f"{name}: images={seen[name]} mean zeros {apoz.mean().item():.3f} prune conv1 filters {sorted(worst)}")
