"""CNN training with a callback that logs gradient norms of every convolution."""
import logging
import warnings
from collections import defaultdict

import torch
from torch import nn

warnings.filterwarnings("ignore", category=UserWarning)
logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("train")


class ConvNet(nn.Module):
    def __init__(self, widths=(3, 8, 8, 8), classes=5):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, 3, padding=1) for a, b in zip(widths, widths[1:])
        )
        self.fc = nn.Linear(widths[-1], classes)

    def forward(self, x):
        for conv in self.convs:
            x = torch.relu(conv(x))
        return self.fc(x.mean(dim=(2, 3)))


class GradNormCallback:
    def __init__(self):
        self.norms = defaultdict(list)
        self.handles = []

    def setup(self, model):
        self.names = {m: n for n, m in model.named_modules() if isinstance(m, nn.Conv2d)}
        for module in self.names:
            self.handles.append(module.register_full_backward_hook(self.on_backward))

    def on_backward(self, module, grad_input, grad_output):
        grad = module.weight.grad
        self.norms[self.names[module]].append(0.0 if grad is None else grad.norm().item())

    def summary(self):
        for name in self.names.values():
            values = self.norms[name]
            log.info("%s: mean gradient norm %.4f over %d steps", name, sum(values) / len(values), len(values))


def main():
    torch.manual_seed(0)
    model = ConvNet()
    callback = GradNormCallback()
    callback.setup(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(6):
        images, labels = torch.randn(8, 3, 12, 12), torch.randint(5, (8,))
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    callback.summary()
    log.info("actual last gradient norm of convs.0: %.4f", model.convs[0].weight.grad.norm())


if __name__ == "__main__":
    main()
