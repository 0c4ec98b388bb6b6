"""Two-phase training: warm up with Adam, continue with SGD; weights are kept inside a ball after each step."""
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Phase:
    name: str
    factory: type
    kwargs: dict
    epochs: int


class MaxNorm:
    def __init__(self, model, radius):
        self.weights = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
        self.radius, self.applied = radius, 0

    @torch.no_grad()
    def __call__(self, optimizer, args, kwargs):
        self.applied += 1
        for weight in self.weights:
            weight.renorm_(2, 0, self.radius)

    def largest(self):
        return max(w.norm(dim=1).max().item() for w in self.weights)


class PhasedTrainer:
    def __init__(self, model, phases, radius=0.5):
        self.model, self.phases = model, phases
        self.constraint = MaxNorm(model, radius)
        self.optimizer = self._make_optimizer(phases[0])
        self.optimizer.register_step_post_hook(self.constraint)

    def _make_optimizer(self, phase):
        return phase.factory(self.model.parameters(), **phase.kwargs)

    def fit(self, batches):
        for i, phase in enumerate(self.phases):
            if i > 0:
                self.optimizer = self._make_optimizer(phase)
            for _ in range(phase.epochs):
                loss = self._epoch(batches)
            print(f"{phase.name}: loss {loss:.3f}, projections {self.constraint.applied}, "
                  f"largest row norm {self.constraint.largest():.3f}")

    def _epoch(self, batches):
        for x, y in batches:
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()
        return loss.item()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
    phases = [Phase("warm-up", torch.optim.Adam, {"lr": 1e-2}, 2),
              Phase("main", torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9}, 4)]
    batches = [(x, 5 * x[:, :1]) for x in torch.randn(5, 32, 6)]
    PhasedTrainer(model, phases).fit(batches)


if __name__ == "__main__":
    main()
