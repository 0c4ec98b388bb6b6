"""Weight standardisation as a hook-based reparametrisation that can be folded away for export."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(23)
torch.set_num_threads(1)


class WeightStandardization:
    """Computes module.weight from weight_raw and weight_gain right before each forward pass."""

    def __init__(self, eps=1e-5):
        self.eps = eps

    def compute(self, module):
        raw = module.weight_raw
        mean = raw.mean(dim=(1, 2, 3), keepdim=True)
        var = raw.var(dim=(1, 2, 3), keepdim=True, unbiased=False)
        return module.weight_gain * (raw - mean) / torch.sqrt(var + self.eps)

    def __call__(self, module, args):
        module.weight = self.compute(module)

    @classmethod
    def apply(cls, module):
        weight = module.weight
        fan_in = weight[0].numel()
        del module.weight
        module.register_parameter("weight_raw", nn.Parameter(weight.detach().clone()))
        gain = torch.full((weight.shape[0], 1, 1, 1), fan_in ** -0.5)
        module.register_parameter("weight_gain", nn.Parameter(gain))
        hook = cls()
        module.weight = hook.compute(module).detach()
        module.weight_standardization = (hook, module.register_forward_pre_hook(hook))
        return module

    @staticmethod
    def fold(module):
        hook, handle = module.weight_standardization
        with torch.no_grad():
            weight = hook.compute(module)
        handle.remove()
        del module.weight_standardization, module.weight_raw, module.weight_gain
        del module.weight
        module.weight = nn.Parameter(weight)
        return module


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = WeightStandardization.apply(nn.Conv2d(1, 8, 3, padding=1))
        self.norm1 = nn.GroupNorm(2, 8)
        self.conv2 = WeightStandardization.apply(nn.Conv2d(8, 16, 3, padding=1))
        self.norm2 = nn.GroupNorm(4, 16)
        self.fc = nn.Linear(16, 3)

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.norm1(self.conv1(x))), 2)
        x = torch.relu(self.norm2(self.conv2(x)))
        return self.fc(x.mean(dim=(2, 3)))


def make_data(n=300):
    y = torch.randint(0, 3, (n,))
    x = 0.5 * torch.randn(n, 1, 10, 10)
    x[y == 1, :, ::2, :] += 0.8
    x[y == 2, :, :, ::2] += 0.8
    return x, y


def main():
    model = Net()
    x, y = make_data()
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    raw_before = model.conv1.weight_raw.detach().clone()
    for epoch in range(6):
        for i in range(0, len(x), 50):
            loss = F.cross_entropy(model(x[i:i + 50]), y[i:i + 50])
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")
    print(f"raw weight moved by {(model.conv1.weight_raw - raw_before).norm().item():.3f}")

    fresh = Net()
    fresh.load_state_dict(model.state_dict())
    model.eval(), fresh.eval()
    with torch.no_grad():
        trained, loaded = model(x), fresh(x)
        for conv in (fresh.conv1, fresh.conv2):
            WeightStandardization.fold(conv)
        folded = fresh(x)
    print("loaded model agrees:", torch.allclose(trained, loaded, atol=1e-5))
    print("folded model agrees:", torch.allclose(trained, folded, atol=1e-5))
    print("keys of the folded model:", ", ".join(k for k in fresh.state_dict() if k.startswith("conv")))
    print(f"accuracy {(folded.argmax(1) == y).float().mean().item():.3f}")


if __name__ == "__main__":
    main()
