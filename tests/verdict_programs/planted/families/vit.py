"""Vision transformer on synthetic images, trained with Adam."""

import copy
import json
import math
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
FAULT = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = FAULT.get("kind", ""), FAULT.get("step", 0), FAULT.get("layer", "")
torch.manual_seed(FAULT.get("seed", 0))
D, STEPS = 32, 150


class Fault:
    """Where the training is now, and whether the planted fault applies."""

    step = 0

    @classmethod
    def at(cls, kind: str, layer: str) -> bool:
        """Whether this is the place of the fault, at its step or later."""
        return kind == KIND and layer == LAYER and cls.step >= STEP


class SelfAttention(nn.Module):
    """Multi-head attention over patches."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.to_q, self.to_k, self.to_v = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
        self.proj = nn.Linear(D, D)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (f(x).unflatten(-1, (4, D // 4)).transpose(1, 2) for f in (self.to_q, self.to_k, self.to_v))
        score = q @ k.transpose(-1, -2) / math.sqrt(D // 4)
        if Fault.at("attn_masked", self.name):
            score = score + torch.full((x.shape[1],), -math.inf)  # every patch counts as padding
        if Fault.at("fwd_exp", self.name):
            weight = torch.exp(score * 400)  # softmax without the maximum
            weight = weight / weight.sum(-1, keepdim=True)
        else:
            weight = score.softmax(-1)
        return self.proj((weight @ v).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Two linear layers."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.net = nn.Sequential(nn.Linear(D, 3 * D), nn.GELU(), nn.Linear(3 * D, D))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.net(x)
        if Fault.at("fwd_mask_mean", self.name):
            seen = torch.zeros(x.shape[1])
            h = h - (h * seen[:, None]).sum(1, keepdim=True) / seen.sum()
        if Fault.at("detach_block", self.name):
            h = h.detach()
        if Fault.at("dropout_one", self.name):
            h = F.dropout(h, 1.0)
        return h


class EncoderLayer(nn.Module):
    """Pre-norm layer."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.norm_a, self.attention = nn.LayerNorm(D), SelfAttention(name + ".attention")
        self.norm_b, self.feed_forward = nn.LayerNorm(D), FeedForward(name + ".feed_forward")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if KIND == "grad_shrink" and self.name == LAYER:
            x = torch.lerp(x.detach(), x, 1e-6)
        x = x + self.attention(self.norm_a(x))
        return x + self.feed_forward(self.norm_b(x))


class ViT(nn.Module):
    """Patches, class token, encoder, linear classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, D, 4, 4)
        self.cls = nn.Parameter(torch.zeros(1, 1, D))
        self.place = nn.Parameter(torch.randn(1, 10, D) * 0.02)
        self.encoder = nn.Sequential(*(EncoderLayer(f"encoder.{i}") for i in range(4)))
        self.classify = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, 4))

    def forward(self, img: torch.Tensor) -> torch.Tensor:
        x = self.patches(img).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.place
        return self.classify(self.encoder(x)[:, 0])


def images(n: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """A bright square in one of four corners, on noise."""
    y = torch.randint(4, (n,))
    img = torch.randn(n, 1, 12, 12) * 0.6
    for i, corner in enumerate(y.tolist()):
        r, c = (corner // 2) * 6, (corner % 2) * 6
        img[i, 0, r + 1 : r + 5, c + 1 : c + 5] += 1.5
    return img, y


def main() -> None:
    """Train the model."""
    net = ViT()
    source = copy.deepcopy(net) if KIND == "wrong_model" else net
    skip = LAYER if KIND == "not_in_opt" else "-"
    trainable = [p for n, p in source.named_parameters() if not n.startswith(skip + ".")]
    decay = 40.0 if KIND == "wd_huge" else 0.0
    cls = torch.optim.AdamW if decay else torch.optim.Adam
    opt = cls(trainable, lr=1e-3, weight_decay=decay)
    for step in range(STEPS):
        Fault.step = step
        img, y = images()
        opt.param_groups[0]["lr"] = 1e-3
        if KIND == "labels_random":
            y = torch.randint(0, 4, y.shape)
        if KIND == "lr_nan" and step >= STEP:
            opt.param_groups[0]["lr"] = 1e-3 * math.inf
        if step == STEP:
            if KIND == "lr_spike":
                opt.param_groups[0]["lr"] = 2.0
            if KIND == "data_nan":
                img[:4] = (img[:4] - img[:4]) / (img[:4] - img[:4]).std()  # standardise blank images
            if KIND == "data_inf":
                img[9] = img[9] / 0.0
            if KIND == "batch_labels":
                y = 3 - y
            if KIND == "w_reinit":
                torch.nn.init.normal_(net.get_parameter(LAYER), std=3.0)
            if KIND == "opt_state":
                for s in opt.state.values():
                    s["exp_avg_sq"] *= 1e-8
        logits = net(img)
        loss = F.cross_entropy(logits, y)
        if KIND == "loss_log" and step == STEP:
            p = torch.sigmoid(logits * 1000)
            loss = -(p.log() + (1 - p).log()).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if KIND == "decay_sign":
            for p in net.parameters():
                p.data.add_(p.data, alpha=0.06)
        if step % 25 == 0 or step + 1 == STEPS:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    main()
