"""Keeps the best model of a run; layer outputs are kept for a norm report."""
import copy

import torch
import torch.nn as nn

torch.manual_seed(0)
torch.set_num_threads(1)


class ConvNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv1 = nn.Conv1d(3, 12, 5, padding=2)
        self.conv2 = nn.Conv1d(12, 16, 5, padding=2)
        self.pool = nn.AdaptiveAvgPool1d(1)
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        x = self.conv1(x).relu()
        x = self.conv2(x).relu()
        return self.fc(self.pool(x).flatten(1))


def remember_output(module, inputs, output):
    module.last_output = output.detach()


def watch(model):
    for module in model.modules():
        if isinstance(module, (nn.Conv1d, nn.Linear)):
            module.register_forward_hook(remember_output)


def output_norms(model):
    return {name: module.last_output.norm(dim=1).mean().item()
            for name, module in model.named_modules() if hasattr(module, "last_output")}


class BestModel:
    def __init__(self):
        self.loss = float("inf")
        self.model = None

    def offer(self, model, loss):
        if loss >= self.loss:
            return
        try:
            self.model = copy.deepcopy(model)
            self.loss = loss
        except RuntimeError as error:
            print(f"  could not keep the model: {str(error).split('.')[0]}")


def make_data(n=240, length=24):
    labels = torch.arange(n) % 4
    time = torch.linspace(0, 6.28, length)
    waves = torch.sin((labels + 1)[:, None] * time)[:, None].repeat(1, 3, 1)
    return waves + 0.6 * torch.randn(n, 3, length), labels


def main():
    x, y = make_data()
    model = ConvNet()
    watch(model)
    best = BestModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(4):
        running = 0.0
        for index in torch.randperm(len(x)).split(48):
            loss = nn.functional.cross_entropy(model(x[index]), y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
        norms = ", ".join(f"{k} {v:.2f}" for k, v in output_norms(model).items())
        print(f"epoch {epoch}: loss {running / 5:.3f} | {norms}")
        best.offer(model, running / 5)
    print("best model kept" if best.model is not None else "no model kept")


if __name__ == "__main__":
    main()
