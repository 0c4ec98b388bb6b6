"""Multimodal classifier; the text branch gets a smaller gradient. Batches without memory are retried later."""
import torch
from torch import nn


class Fusion(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gate = nn.Linear(2 * dim, dim)

    def forward(self, text, image):
        gate = torch.sigmoid(self.gate(torch.cat([text, image], dim=-1)))
        return gate * text + (1 - gate) * image


class Multimodal(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.encoders = nn.ModuleDict({"text": nn.EmbeddingBag(60, dim), "image": nn.Linear(32, dim)})
        self.fusion = Fusion(dim)
        self.head = nn.Linear(dim, 4)

    def forward(self, text, image):
        return self.head(self.fusion(self.encoders["text"](text), self.encoders["image"](image)))


class BranchBalancer:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, module, grad_input, grad_output):
        text_grad = grad_input[0]
        return (text_grad * self.factor,)


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        self.retry = []
        model.fusion.register_full_backward_hook(BranchBalancer(0.2))

    def train_batch(self, batch):
        text, image, label = batch
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(text, image), label)
        try:
            loss.backward()
        except RuntimeError:
            self.retry.append(batch)
            return None
        self.optimizer.step()
        return loss.item()


def main():
    torch.manual_seed(0)
    trainer = Trainer(Multimodal())
    before = trainer.model.head.weight.detach().clone()
    batches = [(torch.randint(60, (8, 5)), torch.randn(8, 32), torch.randint(4, (8,))) for _ in range(6)]
    losses = [trainer.train_batch(batch) for batch in batches]
    print("losses", losses, "batches to retry", len(trainer.retry))
    print("head changed:", not torch.equal(before, trainer.model.head.weight))


if __name__ == "__main__":
    main()
