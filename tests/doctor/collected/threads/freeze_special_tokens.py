"""Fine-tune a small classifier, keeping the rows of the special tokens fixed."""
import torch
from torch import nn

torch.manual_seed(0)
SPECIAL = {"<pad>": 0, "<unk>": 1, "<bos>": 2}


class BagClassifier(nn.Module):
    def __init__(self, vocab=30, dim=8, classes=3):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.fc = nn.Linear(dim, classes)

    def forward(self, ids):
        return self.fc(self.emb(ids).mean(1))


def zero_grad_hook(grad):
    return torch.zeros_like(grad)


model = BagClassifier()
for name, idx in SPECIAL.items():
    model.emb.weight[idx].register_hook(zero_grad_hook)

before = model.emb.weight.detach().clone()
opt = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(20):
    ids = torch.randint(0, 30, (16, 6))
    ids[:, 0] = SPECIAL["<bos>"]
    y = ids.sum(1) % 3
    loss = nn.functional.cross_entropy(model(ids), y)
    opt.zero_grad()
    loss.backward()
    opt.step()

moved = (model.emb.weight.detach() - before).norm(dim=1)
for name, idx in SPECIAL.items():
    print(f"{name:6s} moved by {moved[idx]:.4f}")
print(f"other rows moved by {moved[3:].mean():.4f} on average")
