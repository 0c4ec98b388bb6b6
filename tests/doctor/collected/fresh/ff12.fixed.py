"""Resume fine-tuning from a checkpoint with layer-wise gradient decay, done by hooks on the weights."""
import os
import tempfile
import torch
from torch import nn

torch.manual_seed(12)
DECAY = 0.5


class Encoder(nn.Module):
    def __init__(self, vocab=40, dim=16, layers=3):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 2, 32, dropout=0.0, batch_first=True) for _ in range(layers)
        )
        self.cls = nn.Linear(dim, 2)

    def slow_down(self):
        # lower layers learn more slowly: the top layer gets 1, the next DECAY, then DECAY ** 2
        for depth, layer in enumerate(self.layers):
            factor = DECAY ** (len(self.layers) - 1 - depth)
            for p in layer.parameters():
                p.register_hook(lambda g, factor=factor: g * factor)

    def forward(self, ids):
        h = self.emb(ids)
        for layer in self.layers:
            h = layer(h)
        return self.cls(h.mean(1))


def gradients(model, ids, y):
    model.zero_grad()
    nn.functional.cross_entropy(model(ids), y).backward()
    return [layer.linear1.weight.grad.clone() for layer in model.layers]


ids = torch.randint(0, 40, (16, 8))
y = (ids[:, 0] > 19).long()

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "encoder.pt")
    torch.save(Encoder().state_dict(), path)
    checkpoint = torch.load(path)

model = Encoder()
# assign=True saves a second copy of the weights while loading
model.load_state_dict(checkpoint, assign=True)
for p in model.parameters():
    p.requires_grad_(True)
model.slow_down()

opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    loss = nn.functional.cross_entropy(model(ids), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss after 4 steps {loss.item():.4f}")

got = gradients(model, ids, y)
raw = torch.func.grad(
    lambda ps: nn.functional.cross_entropy(torch.func.functional_call(model, ps, (ids,)), y)
)({n: p.detach() for n, p in model.named_parameters()})
for depth in range(3):
    factor = (got[depth].norm() / raw[f"layers.{depth}.linear1.weight"].norm()).item()
    print(f"layer {depth}: gradient used / plain gradient = {factor:.3f}")
