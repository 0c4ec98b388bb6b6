"""Notebook export: damp the activations of a sparse autoencoder's hidden layer and look at the output."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(15)

# %% model and data
class SparseAE(nn.Module):
    def __init__(self, d=12, h=24):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, h), nn.ReLU())
        self.dec = nn.Linear(h, d)

    def forward(self, x):
        return self.dec(self.enc(x))


basis = torch.randn(6, 12)
x = F.relu(torch.randn(128, 6)) @ basis
model = SparseAE()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)

# %% training
for epoch in range(60):
    loss = F.mse_loss(model(x), x) + 1e-3 * model.enc(x).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.3f}")
x_probe = F.relu(torch.randn(32, 6)) @ basis
with torch.no_grad():
    clean = model.enc(x_probe).clone()

# %% experiment cell: change `factor`, run again
EXPERIMENT = """
def damp(module, args, output):
    return output * factor

if 'handle' in globals():
    handle.remove()
handle = model.enc.register_forward_hook(damp)
with torch.no_grad():
    hidden = model.enc(x_probe)
    recon = model.dec(hidden)
ratio = (hidden.norm() / clean.norm()).item()
results.append((factor, ratio, F.mse_loss(recon, x_probe).item()))
"""

results = []
# the cell was executed with these values, one after the other
for factor in (1.0, 0.8, 0.6, 0.8, 1.0):
    exec(EXPERIMENT)

# %% table
print("factor  measured  mse")
for factor, ratio, mse in results:
    print(f"{factor:5.2f}   {ratio:7.3f}  {mse:.3f}")
print("factor 0.8 repeated gives the same result:", abs(results[1][2] - results[3][2]) < 1e-6)

# %% clean up and final evaluation
handle.remove()
with torch.no_grad():
    print(f"final reconstruction mse {F.mse_loss(model(x_probe), x_probe).item():.3f}")
