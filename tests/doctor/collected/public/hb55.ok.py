"""Text-conditioned diffusion: guided sampling, with the attention maps of the conditional half."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(25)
torch.set_num_threads(1)


class CrossAttention(nn.Module):
    def __init__(self, dim, context_dim):
        super().__init__()
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(context_dim, dim, bias=False)
        self.v = nn.Linear(context_dim, dim, bias=False)
        self.weights = nn.Softmax(dim=-1)

    def forward(self, x, context):
        scores = self.q(x) @ self.k(context).transpose(1, 2) / math.sqrt(x.shape[-1])
        return self.weights(scores) @ self.v(context)


class Denoiser(nn.Module):
    def __init__(self, width=16, context_dim=8):
        super().__init__()
        self.inp = nn.Conv2d(2, width, 3, padding=1)
        self.attn1 = CrossAttention(width, context_dim)
        self.mix = nn.Conv2d(width, width, 3, padding=1)
        self.attn2 = CrossAttention(width, context_dim)
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def attend(self, attn, x, context):
        tokens = x.flatten(2).transpose(1, 2)
        tokens = tokens + attn(tokens, context=context)
        return tokens.transpose(1, 2).reshape(x.shape)

    def forward(self, x, t, context):
        x = torch.cat([x, t.view(-1, 1, 1, 1).expand_as(x)], 1)
        x = self.attend(self.attn1, F.silu(self.inp(x)), context)
        x = self.attend(self.attn2, F.silu(self.mix(x)), context)
        return self.out(x)


class AttentionStore:
    """Sums the maps of the conditional half of the batch over layers and time steps."""

    def __init__(self, model, gain):
        self.total, self.count = 0.0, 0
        self.gain = gain
        self.handles = []
        for attn in (model.attn1, model.attn2):
            self.handles.append(attn.register_forward_pre_hook(self.emphasise, with_kwargs=True))
            self.handles.append(attn.weights.register_forward_hook(self.add))

    def emphasise(self, module, args, kwargs):
        empty, text = kwargs["context"].chunk(2)
        return args, {**kwargs, "context": torch.cat([empty, text * self.gain])}

    def add(self, module, inputs, output):
        self.total = self.total + output.detach().chunk(2)[1].mean(0)
        self.count += 1

    def mean(self):
        return self.total / self.count

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for handle in self.handles:
            handle.remove()


@torch.no_grad()
def sample(model, context, generator, steps=8, scale=3.0, gain=1.0):
    x = torch.randn(len(context), 1, 8, 8, generator=generator)
    both = torch.cat([torch.zeros_like(context), context])
    with AttentionStore(model, torch.tensor([gain, 1.0, 1.0]).view(1, 3, 1)) as store:
        for i in range(steps, 0, -1):
            t = torch.full((2 * len(x),), i / steps)
            empty, text = model(torch.cat([x, x]), t, both).chunk(2)
            x = x - (empty + scale * (text - empty)) / steps
    return x, store


def main():
    words = torch.randn(4, 8)
    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(60):
        pick = torch.randint(0, 4, (16, 3))
        context = words[pick] * (torch.rand(16, 1, 1) > 0.2)
        clean = context[:, :1, :1].unsqueeze(-1).expand(16, 1, 8, 8)
        t, noise = torch.rand(16), torch.randn(16, 1, 8, 8)
        mixed = (1 - t.view(-1, 1, 1, 1)) * clean + t.view(-1, 1, 1, 1) * noise
        loss = F.mse_loss(model(mixed, t, context), noise - clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"training loss {loss.item():.3f}")

    context = words[torch.tensor([[0, 1, 2], [3, 2, 1]])]
    for gain in (1.0, 3.0):
        x, store = sample(model, context, torch.Generator().manual_seed(1), gain=gain)
        share = store.mean().mean(0)
        print(f"gain {gain:.0f}: {store.count} maps, attention per token {[round(s, 3) for s in share.tolist()]}, "
              f"sum {share.sum():.3f}, picture means {[round(m, 2) for m in x.mean((1, 2, 3)).tolist()]}")


if __name__ == "__main__":
    main()
