"""Word heat maps for a small text-conditioned diffusion model: cross-attention
probabilities are collected during guided sampling and averaged over steps."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

PIXELS, DIM, WORDS, STEPS, GUIDANCE = 16, 24, 6, 12, 3.0
PROMPT_LEN, NULL = 3, 0


class CrossAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(DIM, DIM) for _ in range(3))
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x, context):
        probs = self.softmax(self.q(x) @ self.k(context).transpose(1, 2) / DIM**0.5)
        return probs @ self.v(context)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, DIM)
        self.place = nn.Parameter(torch.randn(PIXELS, DIM))
        self.time = nn.Linear(1, DIM)
        self.inp, self.out = nn.Linear(1, DIM), nn.Linear(DIM, 1)
        self.attn = CrossAttention()
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x, t, prompt):
        h = self.inp(x[..., None]) + self.place + self.time(t[:, None, None])
        h = h + self.attn(h, self.words(prompt))
        return self.out(h + self.mlp(h)).squeeze(-1)


def picture(prompt):
    image = torch.zeros(len(prompt), PIXELS)
    for slot in range(PROMPT_LEN):
        for i, word in enumerate(prompt[:, slot].tolist()):
            if word:
                image[i, 3 * (word - 1):3 * word] = 1.0
    return image


def train(model, steps=300):
    optim = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(steps):
        prompt = torch.stack([1 + torch.randperm(WORDS - 1)[:PROMPT_LEN] for _ in range(32)])
        target = picture(prompt)
        prompt[torch.rand(32) < 0.2] = NULL
        t = torch.rand(32)
        noise = torch.randn(32, PIXELS)
        noisy = (1 - t[:, None]) * target + t[:, None] * noise
        loss = F.mse_loss(model(noisy, t, prompt), noise - target)
        optim.zero_grad()
        loss.backward()
        optim.step()
    return loss.item()


class HeatMaps:
    def __init__(self, attn):
        self.total, self.count = 0.0, 0
        self.handle = attn.softmax.register_forward_hook(self.collect)

    def collect(self, module, args, probs):
        self.total = self.total + probs[len(probs) // 2:].mean(0)
        self.count += 1

    def average(self):
        return self.total / self.count


@torch.no_grad()
def sample(model, prompt):
    x = torch.randn(1, PIXELS)
    both = torch.cat([torch.full_like(prompt, NULL), prompt])
    for i in range(STEPS, 0, -1):
        t = torch.full((2,), i / STEPS)
        plain, guided = model(x.repeat(2, 1), t, both).chunk(2)
        x = x - (plain + GUIDANCE * (guided - plain)) / STEPS
    return x


model = Denoiser()
print(f"training loss {train(model):.3f}")
prompt = torch.tensor([[2, 5, 1]])
maps = HeatMaps(model.attn)
image = sample(model, prompt)
heat = maps.average()
maps.handle.remove()
print(f"bright pixels {(image[0] > 0.5).nonzero().flatten().tolist()}")
for slot, word in enumerate(prompt[0].tolist()):
    region = heat[3 * (word - 1):3 * word, slot]
    print(f"word {word}: attention in its own region {region.mean():.3f}, overall {heat[:, slot].mean():.3f}")
ratio = torch.stack([heat[3 * (w - 1):3 * w, s].mean() for s, w in enumerate(prompt[0].tolist())]).mean()
print(f"mean attention of a region to its own word {ratio:.3f}")
