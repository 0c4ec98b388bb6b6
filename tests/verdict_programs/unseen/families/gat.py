"""Graph attention network on a random graph with communities: plain tensors, one graph per update."""
import json
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
fault = json.loads(os.environ.get("FAULT", "{}"))
what, step_of_fault, place = fault.get("kind", ""), fault.get("step", 0), fault.get("layer", "")
torch.manual_seed(fault.get("seed", 0))
HIDDEN, CLASSES = 24, 4


class GraphAttention(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.lin = nn.Linear(d_in, d_out)
        self.left, self.right = nn.Linear(d_out, 1, bias=False), nn.Linear(d_out, 1, bias=False)
        self.norm = nn.LayerNorm(d_out)
        self.mode, self.slope = "", 1.0

    def forward(self, x, adj):
        if self.slope != 1.0:
            x = x.detach().lerp(x, self.slope)
        h = self.lin(x)
        logits = torch.tanh(self.left(h) + self.right(h).T)
        if self.mode == "attn_masked":
            adj = adj.clone()
            adj[5, :] = False  # a node without neighbours
        a = logits.masked_fill(~adj, -torch.inf).softmax(1)
        if self.mode == "fwd_div":
            cut = adj.float() * (torch.arange(len(adj)) != 7).float()[:, None]
            a = cut / cut.sum(1, keepdim=True)
        out = a @ h
        if self.mode == "dropout_one":
            out = F.dropout(out, p=1.0)
        out = F.elu(self.norm(out))
        return out + x if x.shape == out.shape else out


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(12, HIDDEN)
        self.gat = nn.ModuleList(GraphAttention(HIDDEN, HIDDEN) for _ in range(4))
        self.cls = nn.Linear(HIDDEN, CLASSES)
        if what == "unused_head":
            self.edge_score = nn.Bilinear(HIDDEN, HIDDEN, 1)

    def forward(self, features, adj):
        x = F.elu(self.inp(features))
        for g in self.gat:
            x = g(x, adj)
        return self.cls(x)


def graph(n=48):
    y = torch.randint(CLASSES, (n,))
    same = y[:, None] == y[None]
    adj = torch.rand(n, n) < torch.where(same, 0.35, 0.06)
    adj = adj | adj.T | torch.eye(n).bool()
    x = torch.randn(n, 12)
    x[:, :CLASSES] += 1.2 * F.one_hot(y, CLASSES)
    return x, adj, y


net = Net()
if what == "grad_shrink":
    net.get_submodule(place).slope = 5e-7
if what == "not_in_opt":
    skip = {id(p) for p in net.get_submodule(place).parameters()}
    params = [p for p in net.parameters() if id(p) not in skip]
else:
    params = list(net.parameters())
opt = torch.optim.Adam(params, lr=0.0 if what == "lr_zero" else 5e-3)
if what == "decay_sign":
    opt = torch.optim.SGD(params, lr=0.1, momentum=0.9)
    opt.param_groups[0]["weight_decay"] = -0.5
for i in range(140):
    x, adj, y = graph()
    if i == step_of_fault:
        if what in ("attn_masked", "fwd_div", "dropout_one"):
            net.get_submodule(place).mode = what
        if what == "w_scale":
            net.get_parameter(place).data = net.get_parameter(place).data * 150
        if what == "state_neg":
            opt.state[net.get_parameter(place)]["exp_avg_sq"].neg_().sub_(1e-2)
        if what == "batch_labels":
            y = (y + 1) % CLASSES
    out = net(x, adj)
    loss = F.cross_entropy(out, y, label_smoothing=0.1)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    if i % 35 == 0:
        print(i, f"{loss.item():.4f}", "accuracy", f"{(out.argmax(1) == y).float().mean().item():.3f}")
