import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

DEVICE = "cpu"
STEPS = 50
BATCH = 32
CLIP = 1.0


class ResidualMLP(nn.Module):
    def __init__(self, dim_in: int, dim: int, dim_out: int, depth: int = 3) -> None:
        super().__init__()
        self.stem = nn.Linear(dim_in, dim)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth))
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.head = nn.Linear(dim, dim_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for norm, layer in zip(self.norms, self.layers):
            x = x + F.silu(layer(norm(x)))
        return self.head(x)


def build_data(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(512, 16, generator=g)
    w = torch.randn(16, 3, generator=g)
    return x, torch.tanh(x @ w * 0.3)


def train() -> nn.Module:
    torch.manual_seed(3)
    inputs, targets = build_data(seed=4)
    model = ResidualMLP(16, 32, 3).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**10)

    for step in range(STEPS):
        idx = torch.randperm(len(inputs))[:BATCH]
        x, y = inputs[idx].to(DEVICE), targets[idx].to(DEVICE)

        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            pred = model(x)
            loss = F.mse_loss(pred.float(), y)

        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        grad_norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        scaler.step(optimizer)
        scaler.update()

        print(f"step {step} loss {loss.item()!r} grad_norm {grad_norm.item()!r} scale {scaler.get_scale()!r}")

    return model


if __name__ == "__main__":
    model = train()
    checksum = sum(p.detach().double().sum().item() for p in model.parameters() if p.requires_grad)
    print(f"checksum {checksum!r}")
