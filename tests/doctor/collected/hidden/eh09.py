"""Steering of a tiny random language model while it generates; the hook is active in evaluation only."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    """Returns a tuple (hidden states, attention weights)."""

    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        mask = torch.full((x.shape[1],) * 2, float("-inf")).triu(1)
        weights = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + mask).softmax(-1)
        x = x + weights @ v
        return x + self.mlp(x), weights


class TinyLM(nn.Module):
    def __init__(self, vocab=50, dim=32):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(3))
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.tok(ids)
        for block in self.blocks:
            x, _ = block(x)
        return self.head(x)

    @torch.no_grad()
    def generate(self, ids, n):
        for _ in range(n):
            ids = torch.cat([ids, self(ids)[:, -1:].argmax(-1)], 1)
        return ids[:, -n:]


class SteeringHook:
    def __init__(self, vector):
        self.vector, self.calls, self.skipped = vector, 0, 0

    def __call__(self, module, args, output):
        if module.training:
            self.skipped += 1  # training must not see the vector
            return None
        self.calls += 1
        if isinstance(output, tuple):
            return (output[0] + self.vector,) + tuple(output[1:])
        return output + self.vector


def main():
    torch.manual_seed(0)
    model = TinyLM().eval()
    prompt = torch.tensor([[3, 7, 11, 2], [9, 9, 4, 5]])
    plain = model.generate(prompt, 6)
    hook = SteeringHook(40.0 * F.normalize(model.head.weight[20].detach(), dim=0))
    with model.blocks[-1].register_forward_hook(hook):
        steered = model.generate(prompt, 6)
        print("hook calls while generating:", hook.calls)  # every step has to be steered
        model.train()
        loss = F.cross_entropy(model(prompt)[:, :-1].flatten(0, 1), prompt[:, 1:].flatten())
        loss.backward()
        model.eval()
        print(f"training pass inside: loss {loss.item():.4f}, skipped {hook.skipped}")
    print("plain  :", plain.tolist())
    print("steered:", steered.tolist())
    print("nothing left behind:", torch.equal(plain, model.generate(prompt, 6)))


if __name__ == "__main__":
    main()
