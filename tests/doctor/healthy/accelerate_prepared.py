"""Accelerate: prepare, accumulate, clip; hooks on the prepared model."""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(3, (64,))), batch_size=8, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

inner = accelerator.unwrap_model(model)
means, norms = [], []
inner[1].register_forward_hook(lambda m, args, out: means.append(out.detach().mean()))
for param in inner.parameters():
    param.register_hook(lambda grad: norms.append(grad.norm().item()))

losses = []
for x, y in loader:
    with accelerator.accumulate(model):
        loss = F.cross_entropy(model(x), y)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
accelerator.end_training()
result = [losses, means, norms, [p.detach().clone() for p in inner.parameters()]]
