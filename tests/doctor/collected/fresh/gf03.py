"""Sweep the strength of a concept direction in a traced encoder and see how the prediction shifts."""
import torch
import torch.nn as nn

torch.manual_seed(11)


class Encoder(nn.Module):
    def __init__(self, d_in=12, d=16):
        super().__init__()
        self.inp = nn.Linear(d_in, d)
        self.mid = nn.Linear(d, d)
        self.out = nn.Linear(d, 2)

    def forward(self, x):
        h = torch.tanh(self.inp(x))
        h = torch.tanh(self.mid(h))
        return self.out(h)


class Steering:
    """Adds strength * direction to the output of a layer; strength can be changed at any time."""

    def __init__(self, layer, direction):
        self.direction = direction / direction.norm()
        self.strength = 0.0
        self.handle = layer.register_forward_hook(self.apply)

    def apply(self, module, args, output):
        return output + self.strength * self.direction

    def remove(self):
        self.handle.remove()


def concept_direction(model, positives, negatives):
    with torch.no_grad():
        a = torch.tanh(model.inp(positives)).mean(0)
        b = torch.tanh(model.inp(negatives)).mean(0)
    return model.mid.weight.detach() @ (a - b)


def train(model, x, y):
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss after training {loss.item():.3f}")


x = torch.randn(128, 12)
y = (x[:, 0] + 0.5 * x[:, 1] > 0).long()
model = Encoder()
train(model, x, y)

direction = concept_direction(model, x[y == 1], x[y == 0])
steer = Steering(model.mid, direction)

# the sweep makes many calls, so the model is traced once
fast = torch.jit.trace(model.eval(), x[:4])

probe = torch.randn(32, 12)
results = {}
with torch.no_grad():
    for strength in (-4.0, -2.0, 0.0, 2.0, 4.0):
        steer.strength = strength
        p = torch.softmax(fast(probe), -1)[:, 1].mean().item()
        results[strength] = p
        print(f"strength {strength:+.1f}  mean p(class 1) {p:.4f}")

print("range over the sweep:", f"{max(results.values()) - min(results.values()):.4f}")
steer.remove()
