"""Save checkpoints with short key names, then resume."""
import io
import torch
from torch import nn

torch.set_num_threads(1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 2)
        self.register_state_dict_post_hook(self._strip_prefix)

    @staticmethod
    def _strip_prefix(module, state_dict, prefix, local_metadata):
        for key in list(state_dict):
            short = key.replace("backbone.", "")
            state_dict[short] = state_dict.pop(key)

    def forward(self, x):
        return self.head(self.backbone(x))


def accuracy(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


torch.manual_seed(0)
x = torch.randn(400, 8)
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).long()
model = Classifier()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(150):
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"before saving: accuracy {accuracy(model, x, y):.3f}")

buf = io.BytesIO()
torch.save({"model": model.state_dict(), "step": step}, buf)
buf.seek(0)
ckpt = torch.load(buf)
resumed = Classifier()
resumed.load_state_dict(ckpt["model"], strict=False)
print("resumed at step", ckpt["step"])
print(f"after loading: accuracy {accuracy(resumed, x, y):.3f}")
print("keys in file:", list(ckpt["model"]))
