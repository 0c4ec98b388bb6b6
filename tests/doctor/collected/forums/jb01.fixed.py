"""Post-training calibration of a small patch transformer: collect activation ranges per linear layer."""
import torch
import torch.nn as nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.fc2(torch.relu(self.fc1(self.norm2(x))))


class PatchTransformer(nn.Module):
    def __init__(self, patch=4, dim=32, heads=4, depth=2, classes=5):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(patch * patch, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, classes)

    def forward(self, images):
        p = self.patch
        patches = images.unfold(2, p, p).unfold(3, p, p)
        patches = patches.reshape(images.size(0), -1, p * p)
        x = self.embed(patches)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=1))


class RangeObserver:
    """Keeps the largest absolute value that a layer produced."""

    def __init__(self):
        self.absmax = torch.zeros(())
        self.batches = 0

    def __call__(self, module, inputs, output):
        if isinstance(output, tuple):
            output = output[0]
        self.absmax = torch.maximum(self.absmax, output.detach().abs().max())
        self.batches += 1

    def scale(self, bits=8):
        return (self.absmax / (2 ** (bits - 1) - 1)).item()


def attach_observers(model):
    observers, handles = {}, []
    for name, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            name = name + ".out_proj"
        elif not isinstance(module, nn.Linear) or name.endswith("attn.out_proj"):
            continue
        observers[name] = RangeObserver()
        handles.append(module.register_forward_hook(observers[name]))
    return observers, handles


@torch.no_grad()
def calibrate(model, batches):
    model.eval()
    observers, handles = attach_observers(model)
    for images in batches:
        model(images)
    for handle in handles:
        handle.remove()
    return observers


def main():
    model = PatchTransformer()
    batches = [torch.randn(16, 1, 16, 16) for _ in range(6)]
    observers = calibrate(model, batches)

    print(f"{'layer':28s} batches  scale")
    for name, obs in observers.items():
        print(f"{name:28s} {obs.batches:7d}  {obs.scale():.6f}")
    uncalibrated = [name for name, obs in observers.items() if obs.batches == 0]
    print("layers without a range:", len(uncalibrated))


if __name__ == "__main__":
    main()
