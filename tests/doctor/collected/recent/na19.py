"""Quantisation-aware training of a small text classifier: the linear layers
compute with 4-bit weights during training and evaluation."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, DIM, CLASSES, SEQ, BITS = 80, 32, 4, 12, 4


def quantise(weight):
    levels = 2 ** (BITS - 1) - 1
    scale = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-8) / levels
    return torch.round(weight / scale) * scale


def low_bit_weights(module, args):
    with torch.no_grad():
        module.weight.copy_(quantise(module.weight))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.fc1 = nn.Linear(DIM, 64)
        self.fc2 = nn.Linear(64, 64)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, ids):
        x = self.embed(ids).mean(1)
        return self.head(F.relu(self.fc2(F.relu(self.fc1(x)))))


def prepare(model):
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(low_bit_weights)
    return model


def batch(gen, size=64):
    ids = torch.randint(0, VOCAB, (size, SEQ), generator=gen)
    return ids, (ids < VOCAB // 5).sum(1).clamp(max=CLASSES - 1)


@torch.no_grad()
def accuracy(model):
    ids, labels = batch(torch.Generator().manual_seed(77), size=512)
    return (model(ids).argmax(-1) == labels).float().mean().item()


def codes(model):
    out = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            w = module.weight.detach()
            out[name] = torch.round(w / w.abs().amax(dim=1, keepdim=True) * (2 ** (BITS - 1) - 1))
    return out


gen = torch.Generator().manual_seed(1)
model = prepare(Classifier())
model.embed.weight.requires_grad_(False)
optim = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)

accuracy(model)
start_codes = codes(model)
for epoch in range(6):
    total = 0.0
    for _ in range(40):
        ids, labels = batch(gen)
        loss = F.cross_entropy(model(ids), labels)
        optim.zero_grad()
        loss.backward()
        optim.step()
        total += loss.item()
    print(f"epoch {epoch}: loss {total / 40:.4f}, accuracy {accuracy(model):.3f}")

end_codes = codes(model)
for name in start_codes:
    moved = (start_codes[name] != end_codes[name]).float().mean()
    print(f"{name}: {moved:.1%} of the 4-bit codes changed during training")
