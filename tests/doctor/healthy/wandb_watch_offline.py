"""wandb.watch over a training, offline: gradients and parameters go into its histograms."""

import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

with tempfile.TemporaryDirectory() as folder:
    os.environ.update(WANDB_MODE="offline", WANDB_DIR=folder, WANDB_SILENT="true", WANDB_ERROR_REPORTING="false")
    os.environ.update(WANDB_CACHE_DIR=folder, WANDB_CONFIG_DIR=folder, WANDB_DATA_DIR=folder)
    import wandb

    torch.manual_seed(0)

    run = wandb.init(project="digits", mode="offline", settings=wandb.Settings(console="off", x_disable_stats=True))
    model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 3))
    run.watch(model, log="all", log_freq=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for step in range(6):
        x, y = torch.randn(16, 8), torch.randint(3, (16,))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()})
        losses.append(loss.item())
    run.unwatch(model)
    run.finish()
result = [losses, [p.detach().clone() for p in model.parameters()]]
