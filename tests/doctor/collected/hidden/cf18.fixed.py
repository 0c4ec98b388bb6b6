"""Attention rollout over the layers of an nn.TransformerEncoder."""
import torch
import torch.nn as nn

torch.manual_seed(17)


class PatchClassifier(nn.Module):
    def __init__(self, dim=24, heads=4, depth=3, patches=16, classes=5):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, 4, 4)
        self.pos = nn.Parameter(0.5 * torch.randn(1, patches, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 48, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        tokens = self.embed(x).flatten(2).transpose(1, 2) + self.pos
        return self.head(self.encoder(tokens).mean(1))


class AttentionRecorder:
    def __init__(self, encoder):
        self.maps = []
        self.handles = [layer.self_attn.register_forward_hook(self.record) for layer in encoder.layers]
        self.handles += [layer.self_attn.register_forward_pre_hook(self.ask, with_kwargs=True) for layer in encoder.layers]

    @staticmethod
    def ask(module, args, kwargs):
        return args, {**kwargs, "need_weights": True}

    def record(self, module, args, output):
        # nn.MultiheadAttention returns (values, weights)
        weights = output[1]
        if weights is not None:
            self.maps.append(weights.detach())

    def close(self):
        for h in self.handles:
            h.remove()


def rollout(maps, n):
    joint = torch.eye(n).expand(1, n, n)
    for a in maps:
        a = 0.5 * a + 0.5 * torch.eye(n)
        joint = a @ joint
    return joint


model = PatchClassifier().eval()
recorder = AttentionRecorder(model.encoder)
image = torch.randn(1, 3, 16, 16)
image[:, :, :4, 4:8] += 4.0

with torch.no_grad():
    logits = model(image)
recorder.close()

print("predicted class", logits.argmax(1).item())
print("layers recorded:", len(recorder.maps))
joint = rollout(recorder.maps, 16)
received = joint.mean(1)[0]
top = received.topk(3).indices.tolist()
print("rollout row sums", f"{joint.sum(-1).mean().item():.3f}")
print(f"rollout spread {received.std().item():.4f}")
print("most attended patches", sorted(top))
