"""Differentially private training of a character RNN: per-example gradients of
the recurrent layer are assembled from hooks, clipped and noised."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

CHARS, EMB, HID, CLASSES, SEQ, BATCH = 20, 8, 16, 3, 7, 12
MAX_NORM, NOISE = 1.0, 0.05


class CharRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(CHARS, EMB)
        self.cell = nn.Linear(EMB + HID, HID)
        self.head = nn.Linear(HID, CLASSES)

    def forward(self, ids):
        x = self.embed(ids)
        h = x.new_zeros(len(ids), HID)
        for t in range(ids.shape[1]):
            h = torch.tanh(self.cell(torch.cat([x[:, t], h], dim=1)))
        return self.head(h)


class PerExampleGrads:
    """Sums grad_output x input over all calls of a linear layer, per example."""

    def __init__(self, layer):
        self.inputs = []
        self.grad_sample = None
        layer.register_forward_hook(self.save_input)
        layer.register_full_backward_hook(self.accumulate)

    def save_input(self, layer, args, output):
        if layer.training:
            self.inputs.append(args[0].detach())

    def accumulate(self, layer, grad_input, grad_output):
        if not layer.training:
            return
        activation = self.inputs.pop()
        grads = torch.einsum("bo,bi->boi", grad_output[0], activation)
        self.grad_sample = grads if self.grad_sample is None else self.grad_sample + grads

    def reset(self):
        self.inputs.clear()
        self.grad_sample = None


def names_batch(gen):
    ids = torch.randint(0, CHARS, (BATCH, SEQ), generator=gen)
    return ids, (ids[:, 0] + ids[:, 3]) % CLASSES


def reference_norms(model, ids, labels):
    norms = []
    for i in range(len(ids)):
        loss = F.cross_entropy(model(ids[i:i + 1]), labels[i:i + 1])
        norms.append(torch.autograd.grad(loss, model.cell.weight)[0].norm())
    return torch.stack(norms)


gen = torch.Generator().manual_seed(1)
model = CharRNN()
sampler = PerExampleGrads(model.cell)
optim = torch.optim.SGD(model.parameters(), lr=0.5)

for step in range(60):
    ids, labels = names_batch(gen)
    sampler.reset()
    optim.zero_grad()
    loss = F.cross_entropy(model(ids), labels, reduction="sum")
    loss.backward()
    norms = sampler.grad_sample.flatten(1).norm(dim=1)
    factor = (MAX_NORM / (norms + 1e-6)).clamp(max=1.0)
    clipped = torch.einsum("b,boi->oi", factor, sampler.grad_sample)
    noise = NOISE * MAX_NORM * torch.randn(clipped.shape, generator=gen)
    model.cell.weight.grad = (clipped + noise) / BATCH
    for p in (model.embed.weight, model.cell.bias, *model.head.parameters()):
        p.grad /= BATCH
    optim.step()

ids, labels = names_batch(gen)
sampler.reset()
F.cross_entropy(model(ids), labels, reduction="sum").backward()
fast = sampler.grad_sample.flatten(1).norm(dim=1)
model.eval()
slow = reference_norms(model, ids, labels)
print(f"training loss per example {loss.item() / BATCH:.3f}")
print("hook norms     ", [round(v, 3) for v in fast[:5].tolist()])
print("one-by-one norms", [round(v, 3) for v in slow[:5].tolist()])
print(f"largest relative error of a per-example norm: {((fast - slow).abs() / slow).max():.4f}")
