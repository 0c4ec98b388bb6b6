"""Deep supervision: auxiliary head on an intermediate block captured by a hook."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

D = 16


class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(D, D)
        self.norm = nn.LayerNorm(D)

    def forward(self, x):
        return torch.relu(self.norm(self.lin(x)))


class Backbone(nn.Module):
    def __init__(self, ckpt):
        super().__init__()
        self.stem = nn.Linear(D, D)
        self.stages = nn.ModuleList(Stage() for _ in range(3))
        self.head = nn.Linear(D, 2)
        self.ckpt = ckpt

    def forward(self, x):
        x = self.stem(x)
        for s in self.stages:
            x = checkpoint(s, x, use_reentrant=True) if self.ckpt else s(x)
        return self.head(x)


def run(ckpt, aux_weight):
    torch.manual_seed(0)
    model, aux_head = Backbone(ckpt), nn.Linear(D, 2)
    feats = {}

    def keep(mod, args, out):
        feats.setdefault("mid", out)
    model.stages[1].norm.register_forward_hook(keep)
    x, y = torch.randn(32, D), torch.randint(0, 2, (32,))
    loss = nn.functional.cross_entropy(model(x), y)
    aux = nn.functional.cross_entropy(aux_head(feats["mid"]), y)
    (loss + aux_weight * aux).backward()
    return (loss.item(), aux.item(), model.stages[0].lin.weight.grad.norm().item(), aux_head.weight.grad.norm().item())


for ckpt in (False, True):
    for w in (0.0, 5.0):
        l, a, g, ga = run(ckpt, w)
        print(f"checkpoint={ckpt!s:5} aux weight {w}: loss {l:.4f} aux {a:.4f} "
              f"grad of stage 0 {g:.5f} grad of aux head {ga:.4f}")
