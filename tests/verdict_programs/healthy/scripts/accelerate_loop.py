"""An Accelerate program with prepare, accumulate, clipping and a transformers schedule."""

import hashlib

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import get_cosine_schedule_with_warmup


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


def digits():
    """Return the 8x8 digits as images and labels, split into training and test data."""
    x, y = load_digits(return_X_y=True)
    x = torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) / 8 - 1
    y = torch.tensor(y)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    x, y = x[order], y[order]
    return x[:1500], y[:1500], x[1500:], y[1500:]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(54)
    x, y, xt, yt = digits()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 96), nn.GELU(), nn.Dropout(0.1), nn.Linear(96, 10))
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    sched = get_cosine_schedule_with_warmup(opt, 50, 600)
    model, opt, loader, sched = accelerator.prepare(model, opt, loader, sched)
    for epoch in range(12):
        for xb, yb in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(xb), yb)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
        print(f"epoch {epoch} loss {loss.item():.4f}")
    net = accelerator.unwrap_model(model).eval()
    acc = (net(xt).argmax(1) == yt).float().mean().item()
    print(f"accuracy {acc:.3f}")
    assert acc > 0.93
    print("digest", digest(net))


main()
