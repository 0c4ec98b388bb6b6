"""Data-parallel style gradient bucketing, simulated with two replicas in one process."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(15)
torch.set_num_threads(1)


class Replica(nn.Module):
    def __init__(self, features=12, hidden=24, classes=3):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, classes),
        )

    def forward(self, x):
        return self.layers(x)


class BucketReducer:
    """Averages a parameter's gradient over all replicas as soon as the last one has it."""

    def __init__(self, replicas):
        self.replicas = replicas
        self.ready = {}
        self.reduced = 0
        for replica in replicas:
            for name, param in replica.named_parameters():
                self.attach(name, param)

    def attach(self, name, param):
        accumulator = param.expand_as(param).grad_fn.next_functions[0][0]

        def on_accumulated(*unused):
            self.ready.setdefault(name, []).append(param)
            if len(self.ready[name]) == len(self.replicas):
                self.reduce(self.ready.pop(name))

        accumulator.register_hook(on_accumulated)

    def reduce(self, params):
        mean = torch.stack([p.grad for p in params]).mean(dim=0)
        for param in params:
            param.grad.copy_(mean)
        self.reduced += 1


def make_data(n=480, features=12, classes=3):
    centers = torch.randn(classes, features)
    labels = torch.randint(0, classes, (n,))
    return centers[labels] + 0.9 * torch.randn(n, features), labels


def divergence(replicas):
    first, second = (list(r.parameters()) for r in replicas)
    return max((a - b).abs().max().item() for a, b in zip(first, second))


def main():
    x, y = make_data()
    replicas = [Replica(), Replica()]
    replicas[1].load_state_dict(replicas[0].state_dict())
    reducer = BucketReducer(replicas)
    optimizers = [torch.optim.SGD(r.parameters(), lr=0.1) for r in replicas]

    for epoch in range(5):
        losses = []
        for batch in torch.randperm(len(x)).split(48):
            for optimizer in optimizers:
                optimizer.zero_grad()
            for replica, shard in zip(replicas, batch.chunk(2)):
                loss = F.cross_entropy(replica(x[shard]), y[shard])
                loss.backward()
                losses.append(loss.item())
            for optimizer in optimizers:
                optimizer.step()
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}")

    print(f"gradients reduced: {reducer.reduced}")
    print(f"largest difference between the replicas: {divergence(replicas):.6f}")


if __name__ == "__main__":
    main()
