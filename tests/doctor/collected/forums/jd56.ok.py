"""Two accelerate hooks on one block: input noise for robustness, and a call meter."""
import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.hooks import ModelHook, add_hook_to_module, remove_hook_from_module

torch.set_num_threads(1)


class NoisyInput(ModelHook):
    def __init__(self, std):
        self.std = std
        self.generator = torch.Generator().manual_seed(0)

    def pre_forward(self, module, *args, **kwargs):
        if not module.training:
            return args, kwargs
        noise = torch.randn(args[0].shape, generator=self.generator)
        return (args[0] + self.std * noise, *args[1:]), kwargs


class Meter(ModelHook):
    def __init__(self):
        self.calls = 0
        self.rows = 0

    def post_forward(self, module, output):
        self.calls += 1
        self.rows += output.shape[0]
        return output


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(14, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.block(x))


def make_data(n=320):
    centers = torch.randn(4, 14) * 1.5
    y = torch.randint(0, 4, (n,))
    return torch.utils.data.TensorDataset(centers[y] + torch.randn(n, 14), y)


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    loader = torch.utils.data.DataLoader(make_data(), batch_size=40)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    block = accelerator.unwrap_model(model).block
    meter = Meter()
    add_hook_to_module(block, NoisyInput(std=0.3))
    add_hook_to_module(block, meter, append=True)
    for epoch in range(4):
        running = 0.0
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            running += loss.item() / len(loader)
        print(f"epoch {epoch}: loss {running:.3f}")
    print(f"block was called {meter.calls} times on {meter.rows} rows")

    remove_hook_from_module(block)
    model.eval()
    with torch.no_grad():
        hits = sum((model(x).argmax(dim=1) == y).sum().item() for x, y in loader)
    print(f"accuracy {hits / len(loader.dataset):.3f}, calls after removal {meter.calls - 4 * len(loader)}")


if __name__ == "__main__":
    main()
