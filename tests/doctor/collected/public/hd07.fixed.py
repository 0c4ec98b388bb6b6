"""AutoRec-style recommender whose hidden code is kept sparse by an activity penalty."""
import torch
from torch import nn
import torch.nn.functional as F


class RatingAutoencoder(nn.Module):
    def __init__(self, items, code=64):
        super().__init__()
        self.encoder = nn.Linear(items, code)
        self.activation = nn.Sigmoid()
        self.decoder = nn.Linear(code, items)

    def forward(self, ratings):
        return self.decoder(self.activation(self.encoder(ratings)))


class HookedOutput:
    """Keeps the latest output of a layer."""

    def __init__(self, layer):
        self.stored = None
        self.handle = layer.register_forward_hook(self._keep)

    def _keep(self, module, inputs, output):
        self.stored = output

    def release(self):
        self.handle.remove()
        self.stored = None


def make_ratings(users=400, items=80, rank=5):
    taste = torch.randn(users, rank)
    traits = torch.randn(rank, items)
    full = taste @ traits / rank ** 0.5
    observed = (torch.rand(users, items) < 0.3).float()
    return full * observed, observed


class Trainer:
    def __init__(self, model, target=0.15, strength=1.0):
        self.model = model
        self.target = target
        self.strength = strength
        self.code = HookedOutput(model.activation)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def loss(self, ratings, observed):
        predicted = self.model(ratings)
        error = ((predicted - ratings) ** 2 * observed).sum() / observed.sum()
        activity = self.code.stored.mean(0)
        penalty = F.relu(activity - self.target).sum()
        return error, penalty, activity.mean().item()

    def fit(self, ratings, observed, epochs=30, batch_size=50):
        for epoch in range(epochs):
            sums = [0.0, 0.0]
            batches = torch.randperm(len(ratings)).split(batch_size)
            for rows in batches:
                error, penalty, activity = self.loss(ratings[rows], observed[rows])
                self.optimizer.zero_grad()
                (error + self.strength * penalty).backward()
                self.optimizer.step()
                sums[0] += error.item()
                sums[1] += activity
            if epoch % 10 == 9:
                print(f"epoch {epoch}: error {sums[0] / len(batches):.4f} activity {sums[1] / len(batches):.3f}")
        return sums[1] / len(batches)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ratings, observed = make_ratings()
    trainer = Trainer(RatingAutoencoder(ratings.shape[1]))
    activity = trainer.fit(ratings, observed)
    trainer.code.release()
    reached = activity < trainer.target + 0.05
    print(f"mean activity of the code {activity:.3f}, target {trainer.target}: {'reached' if reached else 'missed'}")


if __name__ == "__main__":
    main()
