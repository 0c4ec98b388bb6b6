"""Weight averaging that starts late on purpose and moves along when the optimizer is rebuilt for the second phase."""
import copy
import torch
from torch import nn

torch.manual_seed(107)
START_EPOCH = 3


class Average:
    def __init__(self, model):
        self.model = model
        self.mean = copy.deepcopy(model).requires_grad_(False)
        self.n = 0
        self.handle = None

    def follow(self, optimizer):
        """Attach to this optimizer, and let go of the one before."""
        if self.handle is not None:
            self.handle.remove()
        self.handle = optimizer.register_step_post_hook(self.update)

    @torch.no_grad()
    def update(self, optimizer, args, kwargs):
        self.n += 1
        for m, p in zip(self.mean.parameters(), self.model.parameters()):
            m.add_((p - m) / self.n)


def loss_on(net, x, y):
    return nn.functional.cross_entropy(net(x), y)


x = torch.randn(480, 8)
y = (x[:, 0] * x[:, 1] > 0).long()
x_val, y_val, x, y = x[400:], y[400:], x[:400], y[:400]
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
average = Average(net)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

for epoch in range(10):
    if epoch == START_EPOCH:
        average.follow(optimizer)          # the first epochs are too noisy to enter the average
    if epoch == 6:
        # second phase: plain SGD, new object
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        average.follow(optimizer)
    for i in range(0, 400, 50):
        loss = loss_on(net, x[i:i + 50], y[i:i + 50])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 3 == 0:
        print(f"epoch {epoch}: loss {loss.item():.3f}  averaged updates {average.n}")

with torch.no_grad():
    print(f"validation: live {loss_on(net, x_val, y_val):.3f}, averaged {loss_on(average.mean, x_val, y_val):.3f}")
print(f"updates in the average: {average.n} of {10 * 8}")
