"""Small dilated conv net with weight normalisation."""
import warnings
import torch
from torch import nn
from torch.nn.utils import weight_norm

torch.set_num_threads(1)
warnings.filterwarnings("ignore", category=FutureWarning)
torch.manual_seed(0)


class DilatedNet(nn.Module):
    def __init__(self, ch=8, layers=3):
        super().__init__()
        self.inp = nn.Conv1d(1, ch, 1)
        self.convs = nn.ModuleList(nn.Conv1d(ch, ch, 3, dilation=2**i, padding=2**i) for i in range(layers))
        self.out = nn.Conv1d(ch, 1, 1)

    def forward(self, x):
        h = self.inp(x)
        for c in self.convs:
            h = h + torch.tanh(c(h))
        return self.out(h)

    def apply_weight_norm(self):
        for m in self.modules():
            if isinstance(m, nn.Conv1d):
                weight_norm(m)


model = DilatedNet()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
model.apply_weight_norm()

start = {n: p.detach().clone() for n, p in model.named_parameters()}
t = torch.linspace(0, 12, 128)
for step in range(100):
    phase = torch.rand(8, 1, 1) * 6.28
    wave = torch.sin(3 * t + phase)
    target = wave.roll(-4, dims=-1)
    loss = (model(wave) - target).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 33 == 0:
        print(f"step {step:3d} loss {loss.item():.4f}")

for n, p in model.named_parameters():
    print(f"{n:20s} changed by {(p.detach() - start[n]).norm():.4f}")
