"""Search ranker on top of a frozen text encoder; checkpoints should hold the trained part only."""
import os
import tempfile

import torch
from torch import nn
import torch.nn.functional as F


class FrozenEncoder(nn.Module):
    """Comes with its own pretrained file, so its backbone is left out of every checkpoint."""

    def __init__(self, vocab=400, width=48):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.EmbeddingBag(vocab, width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)
        )
        self.backbone.requires_grad_(False)
        self.adapter = nn.Linear(width, width)
        self._register_state_dict_hook(self._without_backbone)

    @staticmethod
    def _without_backbone(module, state_dict, prefix, local_metadata):
        frozen = prefix + "backbone."
        for key in [key for key in state_dict if key.startswith(frozen)]:
            del state_dict[key]

    def forward(self, tokens):
        return F.normalize(self.adapter(self.backbone(tokens)), dim=-1)


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = FrozenEncoder()
        self.log_scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, queries, documents):
        return self.log_scale.exp() * self.encoder(queries) @ self.encoder(documents).T


def make_pairs(count, vocab=400):
    topic = torch.randint(0, vocab // 8, (count, 1)) * 8
    queries = topic + torch.randint(0, 8, (count, 5))
    documents = topic + torch.randint(0, 8, (count, 20))
    noise = torch.rand(count, 20) < 0.5
    return queries, torch.where(noise, torch.randint(0, vocab, (count, 20)), documents)


def train(model, queries, documents, epochs=3):
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=3e-3)
    for epoch in range(epochs):
        losses = []
        for rows in torch.randperm(len(queries)).split(64):
            scores = model(queries[rows], documents[rows])
            loss = F.cross_entropy(scores, torch.arange(len(rows)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}")


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Ranker()
    train(model, *make_pairs(1024))

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ranker.pt")
        torch.save(model.state_dict(), path)
        checkpoint = torch.load(path)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    written = sum(value.numel() for value in checkpoint.values())
    print(f"trained values: {trained}, values in the checkpoint: {written}")
    if written > trained:
        print(f"checkpoint is {written / trained:.1f} times as large as planned")

    restored = Ranker()
    restored.encoder.backbone = model.encoder.backbone
    restored.load_state_dict(checkpoint, strict=False)
    queries, documents = make_pairs(128)
    with torch.no_grad():
        print("scores restored:", torch.equal(restored(queries, documents), model(queries, documents)))


if __name__ == "__main__":
    main()
