"""A small vision transformer made of nn.TransformerEncoder."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
args = parser.parse_args()
plant = args.plant
torch.manual_seed(91)


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(24, 3, 48, dropout=0.1, batch_first=True, norm_first=True)
        self.patch = nn.Conv2d(3, 24, 4, 4)
        self.cls = nn.Parameter(torch.zeros(1, 1, 24))
        self.position = nn.Parameter(0.02 * torch.randn(1, 17, 24))
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(24)
        self.classify = nn.Linear(24, 10)

    def forward(self, images):
        x = self.patch(images).flatten(2).mT
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.position
        return self.classify(self.norm(self.encoder(x))[:, 0])


model = ViT()
optimizer = torch.optim.Adamax(model.parameters(), lr=2e-3)
g = torch.Generator().manual_seed(92)
for step in range(8):
    images = torch.randn(6, 3, 16, 16, generator=g)
    labels = torch.randint(0, 10, (6,), generator=g)
    if plant == "activation" and step >= 3:
        model.encoder.layers[1].activation = torch.nn.functional.gelu
    if plant == "position" and step == 2:
        model.position.data[0, 3, 3] += 1e-3
    if plant == "in-proj" and step == 4:
        w = model.encoder.layers[1].self_attn.in_proj_weight.data
        w[5, 5] = torch.nextafter(w[5, 5], torch.tensor(5.0))
    if plant == "attention-dropout" and step >= 2:
        model.encoder.layers[2].self_attn.dropout = 0.2
    if plant == "cls-hook" and step == 5:
        model.cls.register_hook(lambda grad: grad * 0)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    print(step, loss.item())
