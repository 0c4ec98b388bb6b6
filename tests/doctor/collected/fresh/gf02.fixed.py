"""Prepare a trained regressor for serving: trace it with fx, fuse nothing yet, only check the graph."""
import torch
import torch.nn as nn
import torch.fx as fx

torch.manual_seed(3)


class HouseNet(nn.Module):
    def __init__(self, d_in=5, d_hidden=16):
        super().__init__()
        self.register_buffer("mean", torch.zeros(d_in))
        self.register_buffer("std", torch.ones(d_in))
        self.fc1 = nn.Linear(d_in, d_hidden)
        self.act = nn.ReLU()
        self.fc2 = nn.Linear(d_hidden, 1)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x))).squeeze(-1)


def standardise(module, args):
    """The features arrive in raw units; bring them to zero mean and unit variance."""
    (x,) = args
    return ((x - module.mean) / module.std,)


def make_data(n):
    scale = torch.tensor([120.0, 3.0, 1970.0, 0.4, 15.0])
    spread = torch.tensor([40.0, 1.0, 25.0, 0.1, 6.0])
    x = scale + spread * torch.randn(n, 5)
    z = (x - scale) / spread
    y = 2.0 * z[:, 0] + 0.5 * z[:, 1] - z[:, 2] + 0.1 * torch.randn(n)
    return x, y


def train(model, x, y, steps=150):
    opt = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def prepare_for_serving(model):
    """Trace the model; from here on only the GraphModule is handed around."""
    graph_module = fx.symbolic_trace(model.eval())
    ops = [n.op for n in graph_module.graph.nodes]
    print("graph:", ops)
    graph_module.register_forward_pre_hook(lambda m, args: standardise(model, args))
    return graph_module


x, y = make_data(256)
model = HouseNet()
model.mean.copy_(x.mean(0))
model.std.copy_(x.std(0))
# the statistics live in the model, so every caller can pass raw features
model.register_forward_pre_hook(standardise)

print(f"train mse {train(model, x, y):.3f}")

served = prepare_for_serving(model)
x_test, y_test = make_data(64)
with torch.no_grad():
    for name, net in (("model", model), ("served", served)):
        mse = nn.functional.mse_loss(net(x_test), y_test).item()
        print(f"{name:7s} test mse: {'ok' if mse < 0.5 else 'too high'} ({mse:.2f})")
