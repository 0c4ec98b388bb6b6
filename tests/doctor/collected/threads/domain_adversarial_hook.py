"""Domain-adversarial training with a gradient reversal hook."""
import torch
from torch import nn

torch.set_num_threads(1)
LAMBDA = 0.3


class DANN(nn.Module):
    def __init__(self, reverse=True):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
        self.label_head = nn.Linear(16, 2)
        self.domain_head = nn.Linear(16, 2)
        self.reverse = reverse

    def forward(self, x):
        feat = self.features(x)
        labels = self.label_head(feat)
        if self.reverse and feat.requires_grad:
            feat.register_hook(lambda g: -LAMBDA * g)
        return labels, self.domain_head(feat)


def batch():
    x = torch.randn(128, 8)
    dom = (torch.arange(128) % 2)
    y = (x[:, 0] + x[:, 1] > 0).long()
    x[:, 2] += 1.5 * dom
    return x, y, dom


def train(reverse):
    torch.manual_seed(0)
    model = DANN(reverse)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    ce = nn.functional.cross_entropy
    for step in range(201):
        x, y, dom = batch()
        out_y, out_d = model(x)
        loss_y, loss_d = ce(out_y, y), ce(out_d, dom)
        if step == 200:
            w = model.features[0].weight
            g_y = torch.autograd.grad(ce(model.label_head(model.features(x)), y), w)[0]
        opt.zero_grad()
        (loss_y + loss_d).backward()
        if step % 100 == 0:
            print(f"reverse={reverse!s:5} step {step:3d} label loss {loss_y.item():.4f} domain loss {loss_d.item():.4f}")
        opt.step()
    cos = nn.functional.cosine_similarity(model.features[0].weight.grad.flatten(), g_y.flatten(), dim=0)
    print(f"reverse={reverse!s:5} cosine of the trunk's gradient with the label loss's gradient {cos:.3f}")


train(False)
train(True)
