"""Low-rank adaptation of a small text classifier. Checkpoints are exported
with the adapters folded into the dense weights, so that they load anywhere."""
import io

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, DIM, CLASSES, SEQ, RANK = 60, 32, 4, 10, 4


class LoRALinear(nn.Linear):
    def __init__(self, d_in, d_out, rank=RANK, alpha=8.0):
        super().__init__(d_in, d_out)
        self.weight.requires_grad_(False)
        self.bias.requires_grad_(False)
        self.scale = alpha / rank
        self.down = nn.Parameter(torch.randn(rank, d_in) * 0.1)
        self.up = nn.Parameter(torch.zeros(d_out, rank))
        self.register_state_dict_post_hook(fold_adapter)

    def forward(self, x):
        return super().forward(x) + self.scale * F.linear(F.linear(x, self.down), self.up)


def fold_adapter(module, state_dict, prefix, local_metadata):
    up = state_dict.pop(prefix + "up")
    down = state_dict.pop(prefix + "down")
    state_dict[prefix + "weight"] += module.scale * up @ down


class Classifier(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.fc1 = linear(DIM, 2 * DIM)
        self.fc2 = linear(2 * DIM, DIM)
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, ids):
        x = self.embed(ids).mean(1)
        return self.head(F.relu(self.fc2(F.relu(self.fc1(x)))))


def batch(gen, size=64):
    ids = torch.randint(0, VOCAB, (size, SEQ), generator=gen)
    return ids, (ids < VOCAB // 4).sum(1).clamp(max=CLASSES - 1)


@torch.no_grad()
def validation_loss(model):
    ids, labels = batch(torch.Generator().manual_seed(99), size=256)
    return F.cross_entropy(model(ids), labels).item()


def export(model):
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    return buffer


gen = torch.Generator().manual_seed(1)
model = Classifier(LoRALinear)
optim = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
jumps = []
for epoch in range(5):
    for _ in range(20):
        ids, labels = batch(gen)
        loss = F.cross_entropy(model(ids), labels)
        optim.zero_grad()
        loss.backward()
        optim.step()
    before = validation_loss(model)
    checkpoint = export(model)
    after = validation_loss(model)
    jumps.append(abs(after - before))
    print(f"epoch {epoch}: validation loss {before:.4f}, after writing the checkpoint {after:.4f}")

plain = Classifier(nn.Linear)
plain.load_state_dict(torch.load(checkpoint))
print(f"exported model: validation loss {validation_loss(plain):.4f}")
print(f"largest change of the validation loss across a save: {max(jumps):.4f}")
