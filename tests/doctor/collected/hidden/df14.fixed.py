"""Sign descent that runs inside the backward pass, without a separate optimizer."""
import torch
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(6, 20), nn.Tanh(),
            nn.Linear(20, 20), nn.Tanh(),
            nn.Linear(20, 2),
        )

    def forward(self, x):
        return self.layers(x)


class SignDescent:
    """As soon as p.grad is written, move p by lr and drop the gradient again."""

    def __init__(self, params, lr):
        self.lr = lr
        self.updates = 0
        self.nodes = []
        for p in params:
            self.hook_up(p)

    def hook_up(self, p):
        # the AccumulateGrad node of p; its hooks run after p.grad was written
        accumulate = p.expand_as(p).grad_fn.next_functions[0][0]

        def apply(*unused):
            with torch.no_grad():
                p.sub_(self.lr * p.grad.sign())
            p.grad = None
            self.updates += 1

        accumulate.register_hook(apply)
        self.nodes.append(accumulate)


def accuracy(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(dim=1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    x = torch.randn(200, 6)
    y = (x[:, 0] + x[:, 1] ** 2 > 0.7).long()
    model = Net()
    descent = SignDescent(model.parameters(), lr=0.003)

    print(f"before: accuracy {accuracy(model, x, y):.3f}")
    for epoch in range(5):
        for batch in range(0, 200, 40):
            loss = nn.functional.cross_entropy(model(x[batch:batch + 40]), y[batch:batch + 40])
            loss.backward()
        print(f"epoch {epoch} loss {loss.item():.4f}  updates {descent.updates}")
    print(f"after: accuracy {accuracy(model, x, y):.3f}")


if __name__ == "__main__":
    main()
