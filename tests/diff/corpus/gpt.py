"""A small GPT with tied weights. The model returns the logits and the loss."""

import argparse
import io
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--save-every", type=int, default=0, help="save a checkpoint and load it again")
args = parser.parse_args()
plant = args.plant
torch.manual_seed(1337)
VOCAB, WIDTH, HEADS, LENGTH = 48, 32, 4, 16
now = {"step": 0}


class WrongGELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.gelu(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        grad = torch.ops.aten.gelu_backward(grad, x)
        grad[0, 2, 10] += 0.5
        return grad


class Attention(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index = index
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.c_proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, HEADS, C // HEADS).transpose(1, 2) for t in self.c_attn(x).split(C, 2))
        scale = 1 / math.sqrt(C // HEADS)
        if plant == "scale" and self.index == 1 and now["step"] >= 2:
            scale *= 1.0001
        att = (q @ k.transpose(-2, -1)) * scale
        att = att.masked_fill(torch.ones(T, T).tril() == 0, float("-inf")).softmax(-1)
        return self.c_proj((att @ v).transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index = index
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = Attention(index)
        self.ln_2 = nn.LayerNorm(WIDTH, eps=1.1e-5 if plant == "ln-eps" and index == 0 else 1e-5)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(WIDTH, 4 * WIDTH), "c_proj": nn.Linear(4 * WIDTH, WIDTH)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        h = self.mlp["c_fc"](self.ln_2(x))
        wrong = plant == "gelu-backward" and self.index == 1 and now["step"] == 2
        return x + self.mlp["c_proj"](WrongGELU.apply(h) if wrong else F.gelu(h))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, WIDTH)
        self.wpe = nn.Embedding(LENGTH, WIDTH)
        self.h = nn.ModuleList(Block(i) for i in range(3))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        smoothing = 0.05 if plant == "smoothing" and now["step"] >= 3 else 0.0
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=smoothing)


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
warmup = 5 if plant == "warmup" else 4
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / warmup))
text = torch.randint(0, VOCAB, (4000,), generator=torch.Generator().manual_seed(5))
for step in range(8):
    now["step"] = step
    starts = torch.arange(8) * 50 + step * 400
    batch = torch.stack([text[s : s + LENGTH + 1] for s in starts.tolist()])
    idx, targets = batch[:, :-1], batch[:, 1:].clone()
    if plant == "target" and step == 3:
        targets[2, 5] = (targets[2, 5] + 1) % VOCAB
    if plant == "tied" and step == 4:
        model.lm_head.weight.data[7, 3] += 1e-3
    logits, loss = model(idx, targets)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    limit = 0.19 if plant == "clip" and step >= 2 else 0.2
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    optimizer.step()
    scheduler.step()
    print(f"{step}: loss {loss.item():.5f} norm {norm.item():.3f}")
    if args.save_every and (step + 1) % args.save_every == 0:
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.seek(0)
        state = torch.load(file)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
