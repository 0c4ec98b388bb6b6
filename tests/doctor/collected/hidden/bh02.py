"""Optimizer-in-backward: each tensor is updated by a post-accumulate hook, no gradient survives the backward pass."""
import torch
from torch import nn

torch.manual_seed(102)


class TiedLM(nn.Module):
    def __init__(self, vocab=32, dim=20):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, ids):
        h, _ = self.rnn(self.embed(ids))
        return self.out(h)


def fuse_optimizer(model, make):
    """parameters() lists a shared tensor once, so it gets one optimizer and one hook."""
    optimizers = {p: make([p]) for p in model.parameters()}

    def update(p):
        nn.utils.clip_grad_norm_([p], 1.0)
        optimizers[p].step()
        optimizers[p].zero_grad()

    handles = [p.register_post_accumulate_grad_hook(update) for p in optimizers]
    return optimizers, handles


def batch(n=24, length=10):
    start = torch.randint(0, 32, (n, 1))
    return (start + 5 * torch.arange(length)) % 32


def loss_of(model, ids):
    logits = model(ids[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


model = TiedLM()
optimizers, handles = fuse_optimizer(model, lambda ps: torch.optim.Adam(ps, lr=5e-3))

for step in range(80):
    loss = loss_of(model, batch())
    loss.backward()                       # the update happens in here
    if step % 20 == 19:
        print(f"step {step + 1}: loss {loss.item():.3f}")

counts = sorted({int(o.state[p]["step"]) for p, o in optimizers.items()})
print(f"tensors {len(optimizers)}, updates per tensor {counts}")
print("gradients left over:", sum(p.grad is not None for p in model.parameters()))

# from here on the model is only evaluated, the update hooks must not act any more
for h in handles:
    h.remove()
before = model.rnn.weight_hh_l0.detach().clone()
probe = loss_of(model, batch())
probe.backward()
print("weights untouched by the probe:", torch.equal(before, model.rnn.weight_hh_l0))
print(f"gradient norm of the probe {model.rnn.weight_hh_l0.grad.norm():.3f}")
