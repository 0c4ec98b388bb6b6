import copy
import os
import tempfile

import torch
import torch.nn as nn

torch.set_num_threads(1)

OUT_DIR = os.environ.get("SCRIPT_OUT") or tempfile.mkdtemp()
CKPT = os.path.join(OUT_DIR, "checkpoint.pt")
EMA_DECAY = 0.9


class Regressor(nn.Module):
    def __init__(self, d_in=12, d_hidden=40):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(d_in, d_hidden), nn.GELU(), nn.Linear(d_hidden, d_hidden), nn.GELU())
        self.out = nn.Linear(d_hidden, 1)

    def forward(self, x):
        return self.out(self.body(x)).squeeze(-1)


@torch.no_grad()
def update_ema(ema, model):
    for p_ema, p in zip(ema.parameters(), model.parameters()):
        p_ema.mul_(EMA_DECAY).add_(p, alpha=1 - EMA_DECAY)


def build():
    model = Regressor()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-2)
    return model, optimizer


def save(path, model, ema, optimizer, step):
    torch.save(
        {"model": model.state_dict(), "ema": ema.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
        path,
    )


def load(path):
    model, optimizer = build()
    ckpt = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(ckpt["model"])
    optimizer.load_state_dict(ckpt["optimizer"])
    ema = copy.deepcopy(model).requires_grad_(False)
    ema.load_state_dict(ckpt["ema"])
    return model, ema, optimizer, ckpt["step"]


def train_steps(model, ema, optimizer, data, start, stop):
    x_all, y_all = data
    for step in range(start, stop):
        gen = torch.Generator().manual_seed(1000 + step)  # the same batch for a given step, resumed or not
        idx = torch.randint(0, len(x_all), (32,), generator=gen)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x_all[idx]), y_all[idx])
        loss.backward()
        optimizer.step()
        update_ema(ema, model)
        print(f"step {step} loss {loss.item()!r}")
    return stop


def main():
    torch.manual_seed(6)
    x = torch.randn(400, 12)
    y = x[:, 0] * x[:, 1] + x[:, 2:5].sum(dim=1)
    data = (x, y)

    model, optimizer = build()
    ema = copy.deepcopy(model).requires_grad_(False)
    step = train_steps(model, ema, optimizer, data, 0, 20)
    save(CKPT, model, ema, optimizer, step)
    del model, ema, optimizer

    model, ema, optimizer, step = load(CKPT)
    print(f"resumed at step {step}")
    train_steps(model, ema, optimizer, data, step, step + 20)

    with torch.no_grad():
        print(f"ema loss {nn.functional.mse_loss(ema(x), y).item()!r}")
    print(f"checksum {sum(p.detach().double().sum().item() for p in model.parameters() if p.requires_grad)!r}")


if __name__ == "__main__":
    main()
