"""Check that the gradient at the logits is softmax(logits) - onehot."""
import torch
from torch import nn

torch.manual_seed(0)
TEMPERATURE = 0.1


class Scorer(nn.Module):
    def __init__(self, dim=12, items=6):
        super().__init__()
        self.query = nn.Linear(dim, dim)
        self.items = nn.Parameter(torch.randn(items, dim) * 0.1)
        self.captured = {}

    def forward(self, x, banned):
        logits = self.query(x) @ self.items.t()
        if logits.requires_grad:
            logits.register_hook(self._keep)
        logits.mul_(1.0 / TEMPERATURE)
        logits.masked_fill_(banned, -1e4)
        self.captured["logits"] = logits
        return logits

    def _keep(self, grad):
        self.captured["grad"] = grad.clone()


model = Scorer()
x = torch.randn(5, 12)
banned = torch.zeros(5, 6, dtype=torch.bool)
banned[:, 5] = True
y = torch.tensor([0, 1, 2, 3, 4])
loss = nn.functional.cross_entropy(model(x, banned), y, reduction="sum")
loss.backward()

logits = model.captured["logits"].detach()
expected = logits.softmax(1) - nn.functional.one_hot(y, 6)
got = model.captured["grad"]
for i in range(2):
    print(f"row {i} expected", [round(v, 3) for v in expected[i].tolist()])
    print(f"row {i} from hook", [round(v, 3) for v in got[i].tolist()])
print(f"largest possible entry is 1; largest entry in hook {got.abs().max():.3f}")
print(f"ratio hook / expected {(got[:, :5] / expected[:, :5]).mean():.3f}")
