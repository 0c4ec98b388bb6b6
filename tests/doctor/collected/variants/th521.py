"""Triplet network. After each epoch, a probe looks at the embedding of the anchors."""
import torch
from torch import nn


class TripletNet(nn.Module):
    def __init__(self, features=10, dim=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(features, 24), nn.ReLU(), nn.Linear(24, dim))

    def forward(self, anchor, positive, negative):
        za, zp, zn = self.encoder(anchor), self.encoder(positive), self.encoder(negative)
        return nn.functional.triplet_margin_loss(za, zp, zn, margin=1.0)


class EmbeddingProbe:
    """Remembers the embedding of the last batch, so that it can be compared with the class centres."""

    def __init__(self, model):
        self.cache = {}
        model.encoder.register_forward_hook(self._remember)

    def _remember(self, module, args, output):
        self.cache["embedding"] = output.detach()

    def spread(self, labels):
        z = self.cache["embedding"]
        centres = torch.stack([z[labels == k].mean(dim=0) for k in range(2)])
        return (z - centres[labels]).norm(dim=1).mean().item()


def triplets(prototypes, count=64):
    labels = torch.arange(count) % 2
    noise = torch.randn(3, count, prototypes.shape[1]) * 0.2
    anchor = prototypes[labels] + noise[0]
    positive = prototypes[labels] + noise[1]
    negative = prototypes[1 - labels] + noise[2]
    return labels, anchor, positive, negative


def main():
    torch.manual_seed(0)
    prototypes = torch.randn(2, 10)
    model = TripletNet()
    probe = EmbeddingProbe(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(3):
        labels, anchor, positive, negative = triplets(prototypes)
        loss = model(anchor, positive, negative)
        optimizer.zero_grad()
        loss.backward()
        cached = probe.cache["embedding"].clone()
        spread = probe.spread(labels)
        with torch.no_grad():
            same = [torch.allclose(cached, model.encoder(part)) for part in (anchor, positive, negative)]
        optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.3f} spread {spread:.3f} cached is anchor/positive/negative {same}")


if __name__ == "__main__":
    main()
