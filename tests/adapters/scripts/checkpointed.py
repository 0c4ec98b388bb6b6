import argparse

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, d_model: int, n_heads: int, p_drop: float):
        super().__init__()
        self.ln1 = nn.LayerNorm(d_model)
        self.attn = nn.MultiheadAttention(d_model, n_heads, dropout=p_drop, batch_first=True)
        self.ln2 = nn.LayerNorm(d_model)
        self.ff = nn.Sequential(
            nn.Linear(d_model, 4 * d_model),
            nn.GELU(),
            nn.Dropout(p_drop),
            nn.Linear(4 * d_model, d_model),
            nn.Dropout(p_drop),
        )

    def forward(self, x):
        h = self.ln1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.ff(self.ln2(x))


class SequenceClassifier(nn.Module):
    def __init__(self, vocab, d_model, n_heads, n_layers, n_classes, max_len, p_drop, grad_ckpt=True):
        super().__init__()
        self.tok = nn.Embedding(vocab, d_model)
        self.pos = nn.Embedding(max_len, d_model)
        self.blocks = nn.ModuleList([Block(d_model, n_heads, p_drop) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.out = nn.Linear(d_model, n_classes)
        self.grad_ckpt = grad_ckpt

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        for blk in self.blocks:
            if self.grad_ckpt and self.training:
                x = checkpoint(blk, x, use_reentrant=False)
            else:
                x = blk(x)
        return self.out(self.norm(x).mean(dim=1))


def make_batch(batch, length, vocab):
    """label = which third of the vocabulary has most tokens"""
    favourite = torch.randint(0, 3, (batch,))
    ids = torch.randint(0, vocab, (batch, length))
    biased = torch.randint(0, vocab // 3, (batch, length)) + favourite[:, None] * (vocab // 3)
    ids = torch.where(torch.rand(batch, length) < 0.4, biased, ids)
    counts = torch.stack([(ids // (vocab // 3) == k).sum(dim=1) for k in range(3)], dim=1)
    return ids, counts.argmax(dim=1)


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=40)
    cli.add_argument("--batch", type=int, default=24)
    cli.add_argument("--length", type=int, default=20)
    cli.add_argument("--max-lr", type=float, default=4e-3)
    cli.add_argument("--no-grad-ckpt", action="store_true")
    args = cli.parse_args()

    torch.manual_seed(314)
    vocab = 30
    net = SequenceClassifier(vocab, 32, 4, 2, 3, args.length, p_drop=0.1, grad_ckpt=not args.no_grad_ckpt)
    optim = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0.05)
    sched = torch.optim.lr_scheduler.OneCycleLR(optim, max_lr=args.max_lr, total_steps=args.steps)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)

    net.train()
    for step in range(args.steps):
        ids, labels = make_batch(args.batch, args.length, vocab)
        loss = loss_fn(net(ids), labels)
        optim.zero_grad()
        loss.backward()
        gnorm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optim.step()
        sched.step()
        print(f"step {step} loss {loss.item()!r} gnorm {gnorm.item()!r}")

    print(f"checksum {sum(p.detach().double().sum().item() for p in net.parameters() if p.requires_grad)!r}")
