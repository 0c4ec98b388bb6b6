"""Fine-tune a pretrained decoder slowly: the decoder should learn at a tenth of the speed of the rest."""
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class SlowDown:
    factor: float
    handles: list = field(default_factory=list)

    def apply_to(self, *modules):
        for module in modules:
            self.handles.append(module.register_full_backward_hook(self.scale))
        return self

    def scale(self, module, grad_input, grad_output):
        return tuple(None if g is None else g * self.factor for g in grad_input)


class Seq2Vec(nn.Module):
    def __init__(self, dim=10):
        super().__init__()
        self.encoder = nn.ModuleDict({"embed": nn.Embedding(30, dim), "mix": nn.Linear(dim, dim)})
        self.decoder = nn.ModuleList([nn.Linear(dim, dim), nn.Linear(dim, 30)])

    def forward(self, ids):
        h = torch.tanh(self.encoder["mix"](self.encoder["embed"](ids).mean(1)))
        return self.decoder[1](torch.tanh(self.decoder[0](h)))


def displacement(module, start):
    return sum((p - q).norm().item() for p, q in zip(module.parameters(), start))


def experiment(factor):
    torch.manual_seed(0)
    model = Seq2Vec()
    if factor != 1.0:
        SlowDown(factor).apply_to(*model.decoder)
    start = {part: [p.detach().clone() for p in getattr(model, part).parameters()] for part in ("encoder", "decoder")}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    ids = torch.randint(0, 30, (64, 5))
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids), ids[:, 0])
        loss.backward()
        optimizer.step()
    moves = ", ".join(f"{part} moved {displacement(getattr(model, part), s):.4f}" for part, s in start.items())
    print(f"factor {factor}: loss {loss.item():.4f}, {moves}")


def main():
    for factor in (1.0, 0.1):
        experiment(factor)


if __name__ == "__main__":
    main()
