"""Per-head attention maps of an nn.TransformerEncoder, recorded only while they are needed."""
import contextlib

import torch
import torch.nn as nn

torch.manual_seed(4)


class PatchClassifier(nn.Module):
    def __init__(self, dim=24, heads=4, depth=2, classes=5):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, 4, 4)
        layer = nn.TransformerEncoderLayer(dim, heads, 48, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        return self.head(self.encoder(tokens).mean(1))


@contextlib.contextmanager
def attention_maps(encoder):
    maps, handles = [], []

    def ask(module, args, kwargs):
        # the encoder layer asks for no weights; we do
        return args, {**kwargs, "need_weights": True, "average_attn_weights": False}

    def record(module, args, kwargs, output):
        maps.append(output[1].detach())

    for layer in encoder.layers:
        handles.append(layer.self_attn.register_forward_pre_hook(ask, with_kwargs=True))
        handles.append(layer.self_attn.register_forward_hook(record, with_kwargs=True))
    try:
        yield maps
    finally:
        for h in handles:
            h.remove()


model = PatchClassifier().eval()
x = torch.randn(2, 3, 16, 16)
with torch.no_grad():
    plain = model(x)  # fused path
    with attention_maps(model.encoder) as maps:
        hooked = model(x)
    again = model(x)  # nothing is recorded any more, on purpose

print("maps", [tuple(m.shape) for m in maps])
print("rows sum to one:", all(torch.allclose(m.sum(-1), torch.ones(())) for m in maps))
print("prediction unchanged:", torch.allclose(plain, hooked, atol=1e-5), torch.allclose(plain, again))
for i, m in enumerate(maps):
    entropy = -(m * m.clamp(min=1e-9).log()).sum(-1).mean((0, 2))
    print(f"layer {i} entropy per head", [round(v, 3) for v in entropy.tolist()])
assert len(maps) == 2
