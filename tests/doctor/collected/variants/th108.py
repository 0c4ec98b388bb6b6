"""Train with an averaged model and measure dead units of the averaged model on held-out data."""
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset


class DeadUnitMonitor:
    """Collects, in eval mode only, how many hidden units are never active."""

    def __init__(self, model):
        self.active = {}
        self.batches = 0
        self.handles = [
            layer.register_forward_hook(self.observe)
            for layer in model.modules() if isinstance(layer, nn.ReLU)
        ]

    def observe(self, module, args, output):
        if module.training:
            return
        self.batches += 1
        hit = (output.detach() > 0).any(0)
        key = module.extra_name
        self.active[key] = hit if key not in self.active else self.active[key] | hit

    def summary(self):
        return {key: int((~hit).sum()) for key, hit in self.active.items()}


class Mlp(nn.Module):
    def __init__(self, sizes=(6, 32, 32, 1)):
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.acts = nn.ModuleList(nn.ReLU() for _ in sizes[2:])
        for i, act in enumerate(self.acts):
            act.extra_name = f"relu{i}"

    def forward(self, x):
        for linear, act in zip(self.linears, self.acts):
            x = act(linear(x))
        return self.linears[-1](x)


def main():
    torch.manual_seed(0)
    x = torch.randn(128, 6)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=32)
    model = Mlp()
    monitor = DeadUnitMonitor(model)
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(3):
        for xb, yb in loader:
            loss = nn.functional.mse_loss(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.update_parameters(model)
    ema.eval()
    with torch.no_grad():
        val = sum(nn.functional.mse_loss(ema(xb), yb).item() for xb, yb in loader) / len(loader)
    print(f"ema validation loss {val:.4f}")
    print(f"monitored batches {monitor.batches}, dead units {monitor.summary()}")


if __name__ == "__main__":
    main()
