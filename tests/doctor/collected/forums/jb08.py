"""Dead-unit report: which hidden layers have units that never fire after training?"""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(7)
torch.set_num_threads(1)


def build_network(hidden=(32, 24, 16), inputs=10, classes=3):
    act = nn.ReLU()
    layers, width = [], inputs
    for size in hidden:
        layers += [nn.Linear(width, size), act]
        width = size
    layers.append(nn.Linear(width, classes))
    return nn.Sequential(*layers)


class DeadUnitMonitor:
    def __init__(self, model):
        self.active = {}
        self.handles = []
        for name, module in model.named_modules():
            if isinstance(module, nn.ReLU):
                self.handles.append(module.register_forward_hook(self.make_hook(name)))

    def make_hook(self, name):
        def hook(module, inputs, output):
            self.active[name] = (output > 0).float().mean(dim=0)
        return hook

    def remove(self):
        for handle in self.handles:
            handle.remove()

    def report(self):
        for name, rate in self.active.items():
            dead = int((rate == 0).sum())
            print(f"relu {name}: units {rate.numel():3d}  dead {dead:3d}  mean firing rate {rate.mean().item():.3f}")


def make_data(n=600):
    x = torch.randn(n, 10)
    y = (x[:, 0] + x[:, 1] > 0).long() + (x[:, 2] * x[:, 3] > 0.3).long()
    return x, y


def train(model, x, y, epochs=15):
    opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for epoch in range(epochs):
        order = torch.randperm(len(x))
        for batch in order.split(50):
            loss = F.cross_entropy(model(x[batch]), y[batch])
            opt.zero_grad()
            loss.backward()
            opt.step()
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1}: loss {loss.item():.4f}")


def main():
    hidden = (32, 24, 16)
    model = build_network(hidden)
    x, y = make_data()
    train(model, x, y)

    model.eval()
    monitor = DeadUnitMonitor(model)
    with torch.no_grad():
        model(x)
    monitor.remove()
    monitor.report()
    seen = sum(rate.numel() for rate in monitor.active.values())
    print(f"hidden units in the report: {seen} of {sum(hidden)}")


if __name__ == "__main__":
    main()
