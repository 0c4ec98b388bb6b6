"""Sign descent inside the backward pass through the AccumulateGrad nodes, which are kept alive."""
import torch
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(6, 20).requires_grad_(False)
        self.layers = nn.Sequential(nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 2))

    def forward(self, x):
        return self.layers(self.frozen(x))


class SignDescent:
    def __init__(self, params, lr):
        self.lr = lr
        self.updates = 0
        self.nodes = []
        for p in params:
            if p.requires_grad:              # a frozen parameter has no such node
                self.hook_up(p)

    def hook_up(self, p):
        node = p.view_as(p).grad_fn.next_functions[0][0]

        def apply(*unused):
            with torch.no_grad():
                p.sub_(self.lr * p.grad.sign())
            p.grad = None
            self.updates += 1

        node.register_hook(apply)
        self.nodes.append(node)


def main():
    torch.manual_seed(0)
    x = torch.randn(200, 6)
    y = (x[:, 0] + x[:, 1] ** 2 > 0.7).long()
    model = Net()
    start = model.frozen.weight.detach().clone()
    descent = SignDescent(model.parameters(), lr=0.003)
    for epoch in range(4):
        total = 0.0
        for batch in range(0, 200, 40):
            loss = nn.functional.cross_entropy(model(x[batch:batch + 40]), y[batch:batch + 40])
            loss.backward()
            total += loss.item()
        print(f"epoch {epoch} mean loss {total / 5:.4f} updates {descent.updates}")
    print("frozen layer untouched:", torch.equal(start, model.frozen.weight))
    print("gradients left in memory:", sum(p.grad is not None for p in model.parameters()))


if __name__ == "__main__":
    main()
