"""Fine-tuning with gradual unfreezing; the gradients of the encoder are tracked from the moment it trains."""
from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Args:
    epochs: int = 4
    unfreeze_epoch: int = 4
    lr: float = 0.05


class Callback:
    def on_fit_start(self, trainer): ...
    def on_epoch_start(self, trainer, epoch): ...
    def on_fit_end(self, trainer): ...


class GradNormTracker(Callback):
    def __init__(self):
        self.norms = defaultdict(list)

    def on_fit_start(self, trainer):
        for name, p in trainer.model["encoder"].named_parameters():
            p.register_hook(lambda grad, name=name: self.norms[name].append(grad.norm()))

    def on_fit_end(self, trainer):
        print("tracked encoder gradients:", {name: len(v) for name, v in self.norms.items()})


class GradualUnfreeze(Callback):
    def on_epoch_start(self, trainer, epoch):
        frozen = epoch < trainer.args.unfreeze_epoch
        trainer.model["encoder"].requires_grad_(not frozen)


class Trainer:
    def __init__(self, model, args, callbacks):
        self.model, self.args, self.callbacks = model, args, callbacks
        self.optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

    def _fire(self, event, *extra):
        for cb in self.callbacks:
            getattr(cb, event)(self, *extra)

    def fit(self, data):
        self._fire("on_fit_start")
        for epoch in range(self.args.epochs):
            self._fire("on_epoch_start", epoch)
            for x, y in data:
                self.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.model["head"](self.model["encoder"](x)), y)
                loss.backward()
                self.optimizer.step()
            print(f"epoch {epoch} loss {loss.item():.3f}")
        self._fire("on_fit_end")


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.ModuleDict({"encoder": nn.Sequential(nn.Linear(10, 16), nn.GELU()), "head": nn.Linear(16, 3)})
    data = [(torch.randn(16, 10), torch.randint(0, 3, (16,))) for _ in range(4)]
    Trainer(net, Args(), [GradNormTracker(), GradualUnfreeze()]).fit(data)
