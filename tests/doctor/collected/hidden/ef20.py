"""Lower the effective learning rate of one stage of a network by scaling its gradients."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU())
        self.encoder = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.encoder(self.stem(x)).mean((2, 3)))


def slow_down(stage, factor):
    """The stage is pretrained: let it learn with a tenth of the gradient. Returns the handles."""
    def hook(module, grad_input, grad_output):
        return tuple(None if g is None else factor * g for g in grad_input)
    return [stage.register_full_backward_hook(hook)]


def stage_norms(model):
    out = {}
    for name, child in model.named_children():
        out[name] = torch.cat([p.grad.flatten() for p in child.parameters()]).norm().item()
    return out


def one_backward(model, x, y):
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    return stage_norms(model)


def main():
    torch.manual_seed(0)
    x = torch.randn(48, 1, 10, 10)
    y = torch.randint(0, 3, (48,))
    for c in range(3):
        x[y == c, 0, 3 * c:3 * c + 3] += 1.0
    model = Net()
    plain = one_backward(model, x, y)
    handles = slow_down(model.encoder, 0.1)
    scaled = one_backward(model, x, y)
    for name in plain:
        print(f"{name:8s} gradient {plain[name]:.5f} -> {scaled[name]:.5f}  factor {scaled[name] / plain[name]:.2f}")
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(25):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    for h in handles:
        h.remove()
    moved = sum((p - before[n]).norm().item() for n, p in model.named_parameters() if n.startswith("encoder"))
    print(f"loss {loss.item():.3f}, encoder moved by {moved:.3f}")


if __name__ == "__main__":
    main()
