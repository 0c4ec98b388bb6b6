"""Keep a moving average with AveragedModel; the hooks are put on the trained model only, after the copy."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
outputs = []
model[2].register_forward_hook(lambda m, args, out: outputs.append(out.detach().mean()))
for param in model.parameters():
    param.register_hook(lambda grad: grad / (grad.norm() / 0.1).clamp(min=1.0))

optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
batches = [(torch.randn(16, 8), torch.randint(3, (16,))) for _ in range(8)]
losses = []
for x, y in batches:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x) * 5, y)
    loss.backward()
    optimizer.step()
    ema.update_parameters(model)
    losses.append(loss.item())
update_bn(batches, ema)
ema.eval()
with torch.no_grad():
    validation = torch.stack([F.cross_entropy(ema(x), y) for x, y in batches]).mean()
result = [losses, outputs, validation, list(model.state_dict().values()), list(ema.state_dict().values())]
