"""Fine-tune a pruned network with AdamW: gradient masks, and the mask is put back after each step."""
import torch
from torch import nn

torch.manual_seed(103)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 8, 3, padding=1)
        self.c2 = nn.Conv2d(8, 8, 3, padding=1)
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        x = torch.relu(self.c1(x))
        x = torch.relu(self.c2(x)).mean(dim=(2, 3))
        return self.fc(x)


class Sparsity:
    """The gradient hook saves the moments from noise; decay and momentum are undone by the step hook."""

    def __init__(self, layers, share):
        self.masks = {}
        for layer in layers:
            w = layer.weight
            cut = w.detach().abs().flatten().quantile(share)
            mask = (w.detach().abs() > cut).float()
            self.masks[w] = mask
            w.register_hook(mask.mul)
        self.apply()

    @torch.no_grad()
    def apply(self, *_):
        for w, mask in self.masks.items():
            w.mul_(mask)

    def density(self):
        kept = sum(int((w != 0).sum()) for w in self.masks)
        return kept / sum(w.numel() for w in self.masks)


def blobs(n):
    y = torch.randint(0, 3, (n,))
    x = 0.3 * torch.randn(n, 1, 8, 8)
    for k in range(3):
        x[y == k, :, :, 2 * k:2 * k + 3] += 1.0
    x[y == 1] *= 1.5
    return x, y


x, y = blobs(240)
net = ConvNet()
sparsity = Sparsity([net.c1, net.c2], share=0.6)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.05)
optimizer.register_step_post_hook(sparsity.apply)

start = sparsity.density()
for epoch in range(8):
    for i in range(0, 240, 40):
        loss = nn.functional.cross_entropy(net(x[i:i + 40]), y[i:i + 40])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 4 == 3:
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}  density {sparsity.density():.3f}")

print(f"density at the start {start:.3f}, at the end {sparsity.density():.3f}")
