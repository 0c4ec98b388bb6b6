"""Two-tower recommender: user and item embeddings, small MLPs, softmax over the items of the batch."""
import json
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
f = json.loads(os.environ.get("FAULT", "{}"))
kind, at, layer = f.get("kind", ""), f.get("step", 0), f.get("layer", "")
torch.manual_seed(f.get("seed", 0))
USERS, ITEMS, DIM = 80, 120, 16


class Fc(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.lin = nn.Linear(a, b)
        self.soft = False

    def forward(self, x):
        z = self.lin(x)
        if self.soft:
            gate = (z > 0).float()
            return torch.where(z > 0, (z * gate) ** 0.9, torch.zeros(()))
        return torch.relu(z)


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.user_emb = nn.Embedding(USERS + 5, DIM)  # the last ones do not occur
        self.item_emb = nn.Embedding(ITEMS + 9, DIM)
        self.user_mlp = nn.Sequential(Fc(DIM, 48), Fc(48, 48))
        self.item_mlp = nn.Sequential(Fc(DIM, 48), Fc(48, 48))
        self.user_out, self.item_out = nn.Linear(48, DIM), nn.Linear(48, DIM)

    def forward(self, users, items):
        u = self.user_out(self.user_mlp(self.user_emb(users)))
        v = self.item_out(self.item_mlp(self.item_emb(items)))
        return u @ v.T


taste, genre = torch.randint(6, (USERS,)), torch.randint(6, (ITEMS,))
by_genre = [torch.nonzero(genre == g)[:, 0] for g in range(6)]


def interactions(n=6 * 8):
    users = torch.cat([torch.nonzero(taste == g)[:, 0][torch.randint(int((taste == g).sum()), (n // 6,))] for g in range(6)])
    items = torch.cat([by_genre[g][torch.randint(len(by_genre[g]), (n // 6,))] for g in range(6)])
    return users, items


model = Recommender()
if kind == "dead_bias":
    model.get_submodule(layer).lin.bias.data.fill_(-200)
if kind == "maximize":
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, maximize=True)
elif kind == "wd_huge":
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=4.0)
else:
    optimizer = torch.optim.Adam(model.parameters(), lr={"lr_zero": 0.0, "lr_high": 5.0}.get(kind, 1e-2))

for step in range(150):
    users, items = interactions()
    same = (taste[users][:, None] == genre[items][None]).float()
    if step == at:
        if kind == "bwd_where":
            model.get_submodule(layer).soft = True
        elif kind == "adam_eps0":
            optimizer.param_groups[0].update(eps=0.0)
        elif kind == "lr_jump":
            optimizer.param_groups[0]["lr"] = 4.0
        elif kind == "w_scale":
            model.get_parameter(layer).data.mul_(-80)
        elif kind == "opt_state":
            for p, s in optimizer.state.items():
                s["exp_avg_sq"].div_(1e9)
        elif kind == "batch_labels":
            same = 1 - same
    scores = model(users, items)
    if kind == "loss_log" and step == at:
        p = F.softmax(scores * 1000, 1)
        loss = -((same * p.log()).sum(1) / same.sum(1)).mean()
    else:
        loss = -((same * F.log_softmax(scores, 1)).sum(1) / same.sum(1)).mean() - 2.0794
        loss = loss + 0.001 * scores.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 or step == 149:
        print("batch", step, "loss", f"{loss.item():.4f}")
