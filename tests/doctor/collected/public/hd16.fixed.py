"""Product recommender: vectors of known products come from last year, only new products are learned."""
import torch
from torch import nn
import torch.nn.functional as F


class BasketModel(nn.Module):
    """Predicts the next product from the mean of the products in the basket."""

    def __init__(self, known_vectors, new_products):
        super().__init__()
        known, width = known_vectors.shape
        self.products = nn.Embedding(known + new_products, width)
        with torch.no_grad():
            self.products.weight[:known] = known_vectors
            self.products.weight[known:].mul_(0.1)
        learned = torch.zeros(known + new_products, 1)
        learned[known:] = 1.0
        self.register_buffer("learned", learned)
        self.products.weight.register_hook(self._only_new)
        self.mix = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))

    def _only_new(self, grad):
        return grad * self.learned

    def forward(self, baskets):
        query = self.mix(self.products(baskets).mean(1))
        return query @ self.products.weight.T


def make_baskets(count, products, groups=20, size=4):
    group = torch.randint(0, groups, (count, 1))
    inside = group + groups * torch.randint(0, products // groups, (count, size + 1))
    return inside[:, :size], inside[:, size]


class Trainer:
    def __init__(self, model):
        self.model = model
        groups = [
            {"params": [model.products.weight], "weight_decay": 0.0},
            {"params": model.mix.parameters()},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=5e-3, weight_decay=0.1)

    def epoch(self, baskets, following, batch_size=128):
        losses = []
        for rows in torch.randperm(len(baskets)).split(batch_size):
            loss = F.cross_entropy(self.model(baskets[rows]), following[rows])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)


@torch.no_grad()
def hit_rate(model, baskets, following, k=20):
    best = model(baskets).topk(k, dim=1).indices
    return (best == following[:, None]).any(1).float().mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    known, new = 160, 40
    centers = torch.randn(20, 24)
    known_vectors = centers[torch.arange(known) % 20] + 0.2 * torch.randn(known, 24)
    baskets, following = make_baskets(2560, known + new)
    test_baskets, test_following = make_baskets(500, known + new)

    model = BasketModel(known_vectors, new)
    trainer = Trainer(model)
    for epoch in range(6):
        loss = trainer.epoch(baskets, following)
        hits = hit_rate(model, test_baskets, test_following)
        print(f"epoch {epoch}: loss {loss:.4f}, hit rate {hits:.3f}")
    shift = (model.products.weight[:known] - known_vectors).abs().max().item()
    print(f"largest change of a known product vector: {shift:.4f}")


if __name__ == "__main__":
    main()
