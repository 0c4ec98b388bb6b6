"""Overlap gradient reduction with backward (simulated on one machine): a bucket is averaged once it is full."""
import torch
import torch.nn as nn

torch.manual_seed(8)
WORLD = 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


class BucketReducer:
    """Attaches to the gradient accumulators, so that a parameter is known to be finished when it is reported."""

    def __init__(self, params, bucket_size=2):
        self.params = list(params)
        self.bucket_size = bucket_size
        self.pending, self.reduced = [], 0
        self.accumulators = []              # the nodes live as long as somebody holds them
        for p in self.params:
            self.attach(p)

    def attach(self, p):
        accumulator = p.expand_as(p).grad_fn.next_functions[0][0]

        def ready(*unused):
            self.pending.append(p)
            if len(self.pending) == self.bucket_size:
                self.flush()

        accumulator.register_hook(ready)
        self.accumulators.append(accumulator)

    def flush(self):
        # stands in for all_reduce(SUM) / WORLD: every worker contributed the same shard here
        for p in self.pending:
            p.grad.div_(WORLD)
            self.reduced += 1
        self.pending.clear()


x = torch.randn(256, 12)
y = (x[:, 0] + x[:, 1] * x[:, 2]).tanh()
model = Net()
reducer = BucketReducer(model.parameters())
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

for step in range(30):
    idx = torch.randint(0, 256, (64,))
    # the loss is the sum over the workers' shards, the reducer turns the gradient into the mean
    loss = sum(nn.functional.mse_loss(model(x[part]), y[part]) for part in idx.chunk(WORLD))
    optimizer.zero_grad()
    loss.backward()
    reducer.flush()
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm().item()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step:2d} summed loss {loss.item():.3f} gradient norm {norm:.4f}")

with torch.no_grad():
    print(f"final error {nn.functional.mse_loss(model(x), y).item():.4f}")
print(f"gradients reduced per step: {reducer.reduced / 30:.1f} of {len(reducer.params)}")
