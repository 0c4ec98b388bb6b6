"""Domain-adversarial training with a backward hook on the domain head as gradient reversal."""
import torch
from torch import nn

torch.manual_seed(106)
STRENGTH = 0.5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
        self.classify = nn.Linear(32, 3)
        self.domain = nn.Sequential(nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, x):
        h = self.encoder(x)
        return self.classify(h), self.domain(h)


def reverse(module, grad_input, grad_output):
    # only what flows back into the encoder is turned around; the domain head itself learns normally
    return tuple(None if g is None else -STRENGTH * g for g in grad_input)


def batch(n=96):
    x = torch.randn(n, 10)
    y = x[:, :3].argmax(dim=1)
    d = torch.randint(0, 2, (n,))
    x[:, 9] += 2.0 * d
    return x, y, d


def scores(net):
    x, y, d = batch(600)
    with torch.no_grad():
        a, b = net(x)
    return (a.argmax(1) == y).float().mean().item(), (b.argmax(1) == d).float().mean().item()


def train(adversarial):
    torch.manual_seed(7)
    net = Net()
    handle = net.domain.register_full_backward_hook(reverse) if adversarial else None
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
    for step in range(150):
        x, y, d = batch()
        a, b = net(x)
        loss = nn.functional.cross_entropy(a, y) + nn.functional.cross_entropy(b, d)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if handle is not None:
        handle.remove()
    return scores(net)


plain, hidden = train(False), train(True)
print(f"without reversal: class {plain[0]:.2f}  domain {plain[1]:.2f}")
print(f"with reversal:    class {hidden[0]:.2f}  domain {hidden[1]:.2f}")
print("domain information is reduced:", hidden[1] < plain[1] - 0.1)
