import torch
import torch.nn.functional as F
from torch import Tensor, nn

torch.set_num_threads(1)


def zeropower_via_newtonschulz5(G: Tensor, steps: int) -> Tensor:
    a, b, c = (3.4445, -4.7750, 2.0315)
    X = G.mT if G.size(-2) > G.size(-1) else G
    X = X / (X.norm() + 1e-7)
    for _ in range(steps):
        A = X @ X.mT
        B = b * A + c * A @ A
        X = a * X + B @ X
    return X.mT if G.size(-2) > G.size(-1) else X


class Muon(torch.optim.Optimizer):
    """MomentUm Orthogonalized by Newton-schulz. For 2D hidden weights only."""

    def __init__(self, params, lr=0.02, momentum=0.95, weight_decay=0.0, ns_steps=5):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, ns_steps=ns_steps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                buf = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                buf.lerp_(p.grad, 1 - group["momentum"])
                update = p.grad.lerp(buf, group["momentum"])  # nesterov
                update = zeropower_via_newtonschulz5(update, group["ns_steps"])
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"])


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = nn.Linear(dim, 2 * dim, bias=False), nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.relu(self.up(self.norm2(x))).square())


class TinyLM(nn.Module):
    def __init__(self, vocab=24, dim=32, depth=2, heads=2, ctx=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(ctx, dim))
        self.blocks = nn.ModuleList([Layer(dim, heads) for _ in range(depth)])
        self.norm = nn.RMSNorm(dim)
        self.unembed = nn.Linear(dim, vocab)

    def forward(self, idx):
        x = self.embed(idx) + self.pos[: idx.size(1)]
        for block in self.blocks:
            x = block(x)
        return self.unembed(self.norm(x))


torch.manual_seed(2024)
model = TinyLM()
hidden_matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
others = [p for p in model.parameters() if not any(p is q for q in hidden_matrices)]
optimizers = [
    Muon(hidden_matrices, lr=0.02, weight_decay=0.01),
    torch.optim.AdamW(others, lr=5e-3, betas=(0.9, 0.95), weight_decay=0.0),
]

for step in range(50):
    # copy task: the second half repeats the first
    half = torch.randint(0, 24, (16, 8)).sort(dim=1).values
    tokens = torch.cat([half, half], dim=1)
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    for opt in optimizers:
        opt.step()
    model.zero_grad(set_to_none=True)
    print(f"step:{step} train_loss:{loss.item()!r}")

print(f"checksum {sum(p.detach().double().sum().item() for p in model.parameters())!r}")
