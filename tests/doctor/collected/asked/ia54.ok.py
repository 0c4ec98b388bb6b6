"""How often do the gradients of two tasks point in opposite directions in the shared trunk?"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd.graph import register_multi_grad_hook

torch.manual_seed(54)
torch.set_num_threads(1)


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.price = nn.Linear(16, 1)
        self.category = nn.Linear(16, 3)

    def forward(self, x):
        shared = self.trunk(x)
        return self.price(shared).squeeze(-1), self.category(shared)


class ConflictMeter:
    """Gets the trunk gradients of one task after the other and compares them."""

    def __init__(self, params):
        self.waiting = None
        self.cosines = []
        self.handle = register_multi_grad_hook(list(params), self.collect)

    def collect(self, grads):
        flat = torch.cat([g.flatten() for g in grads])
        if self.waiting is None:
            self.waiting = flat
            return
        self.cosines.append(F.cosine_similarity(self.waiting, flat, dim=0).item())
        self.waiting = None

    def summary(self):
        self.handle.remove()
        values = torch.tensor(self.cosines)
        return len(values), values.mean().item(), (values < 0).float().mean().item()


def main():
    x = torch.randn(320, 12)
    price = x[:, 0] - 0.5 * x[:, 1] + 0.3 * x[:, 2] ** 2
    category = (x[:, :3] + x[:, 3:6]).argmax(dim=1)

    model = MultiTask()
    meter = ConflictMeter(model.trunk.parameters())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    batches = 0
    for epoch in range(10):
        price_total = category_total = 0.0
        for batch in torch.randperm(len(x)).split(40):
            optimizer.zero_grad()
            predicted, logits = model(x[batch])
            price_loss = F.mse_loss(predicted, price[batch])
            category_loss = F.cross_entropy(logits, category[batch])
            price_loss.backward(retain_graph=True)
            category_loss.backward()
            optimizer.step()
            batches += 1
            price_total += price_loss.item() * len(batch)
            category_total += category_loss.item() * len(batch)
        if epoch % 3 == 0:
            print(f"epoch {epoch}: price {price_total / len(x):.3f}, category {category_total / len(x):.3f}")

    with torch.no_grad():
        predicted, logits = model(x)
    print(f"final accuracy {(logits.argmax(1) == category).float().mean().item():.3f}")
    count, mean, share = meter.summary()
    print(f"{count} comparisons in {batches} batches")
    print(f"mean cosine {mean:+.3f}, share of conflicts {share:.2f}")


if __name__ == "__main__":
    main()
