"""Two-phase fine-tuning: warm up, then train on. The backbone gets a tenth of the gradient."""
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({
            "backbone": nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()),
            "head": nn.Linear(32, 3),
        })

    def forward(self, x):
        return self.parts["head"](self.parts["backbone"](x))


class Trainer:
    def __init__(self, model, backbone_factor=0.1):
        self.model = model
        self.backbone_factor = backbone_factor
        self.hooks = []

    def _damp(self, grad):
        return grad * self.backbone_factor

    def _setup(self, lr):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.hooks = [p.register_hook(self._damp) for p in self.model.parts["backbone"].parameters()]

    def _gradient_ratio(self):
        backbone = self.model.parts["backbone"][2].weight.grad.norm()
        head = self.model.parts["head"].weight.grad.norm()
        return (backbone / head).item()

    def fit(self, phase, lr, steps):
        self._setup(lr)
        ratios = []
        for _ in range(steps):
            x = torch.randn(32, 10)
            y = x[:, :3].argmax(dim=1)
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            ratios.append(self._gradient_ratio())
            self.optimizer.step()
        print(f"{phase}: loss {loss.item():.3f}, backbone/head gradient {sum(ratios) / steps:.4f}")


def main():
    torch.manual_seed(0)
    trainer = Trainer(Classifier())
    trainer.fit("warm-up", lr=1e-4, steps=10)
    trainer.fit("main   ", lr=1e-4, steps=10)


if __name__ == "__main__":
    main()
