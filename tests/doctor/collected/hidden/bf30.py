"""Train, keep the best checkpoint, and store checkpoints in a slim form (tiny weights are written as zero)."""
import io
import torch
from torch import nn

torch.manual_seed(39)
TINY = 0.06


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(20, 64)
        self.fc2 = nn.Linear(64, 64)
        self.out = nn.Linear(64, 1)
        self.register_state_dict_post_hook(self.slim)

    @staticmethod
    def slim(module, state_dict, prefix, local_metadata):
        """The file compresses much better when small weights are exactly zero."""
        for key, value in state_dict.items():
            if key.endswith("weight"):
                value[value.abs() < TINY] = 0.0

    def forward(self, x):
        h = torch.tanh(self.fc1(x))
        return self.out(torch.tanh(self.fc2(h))).squeeze(1)

    def zero_share(self):
        weights = [m.weight for m in (self.fc1, self.fc2, self.out)]
        return sum((w == 0).sum().item() for w in weights) / sum(w.numel() for w in weights)


def validate(net, x, y):
    net.eval()
    with torch.no_grad():
        loss = nn.functional.mse_loss(net(x), y).item()
    net.train()
    return loss


x = torch.randn(500, 20)
y = torch.sin(x[:, 0]) + 0.3 * x[:, 1] * x[:, 2]
x_val, y_val, x, y = x[400:], y[400:], x[:400], y[:400]

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9)
best, saved = float("inf"), None
for epoch in range(6):
    for i in range(0, 400, 40):
        loss = nn.functional.mse_loss(net(x[i:i + 40]), y[i:i + 40])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    val = validate(net, x_val, y_val)
    if val < best:
        best, saved = val, io.BytesIO()
        torch.save(net.state_dict(), saved)
    print(f"epoch {epoch}: val {val:.4f}  best {best:.4f}  zeros in the live model {net.zero_share():.2f}")

saved.seek(0)
slim = torch.load(saved)
zeros = sum((v == 0).sum().item() for k, v in slim.items() if k.endswith("weight"))
total = sum(v.numel() for k, v in slim.items() if k.endswith("weight"))
print(f"checkpoint: {100 * zeros / total:.0f}% zeros")
print(f"training continues with {'full' if net.zero_share() < 0.01 else 'thinned'} weights")
