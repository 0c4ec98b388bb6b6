"""Per-sample gradient norms from layer inputs and output gradients."""
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

BATCH = 32


class TextClassifier(nn.Module):
    def __init__(self, vocab=200, dim=24, hidden=32, classes=4):
        super().__init__()
        self.embed = nn.EmbeddingBag(vocab, dim)
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, classes)

    def forward(self, tokens):
        return self.fc2(torch.tanh(self.fc1(self.embed(tokens))))


class PerSampleNorms:
    """Norm of every sample's gradient with respect to the linear layers."""

    def __init__(self, model):
        self.inputs = {}
        self.squared = None
        self.handles = []
        for module in model.modules():
            if isinstance(module, nn.Linear):
                self.inputs[module] = deque()
                self.handles.append(module.register_forward_hook(self._save_input))
                self.handles.append(module.register_full_backward_hook(self._add_norm))

    def _save_input(self, module, args, output):
        if torch.is_grad_enabled():
            self.inputs[module].append(args[0].detach())

    def _add_norm(self, module, grad_input, grad_output):
        x = self.inputs[module].popleft()
        g = grad_output[0].detach() * len(x)
        contribution = g.pow(2).sum(dim=1) * (x.pow(2).sum(dim=1) + 1)
        self.squared = contribution if self.squared is None else self.squared + contribution

    def take(self):
        norms = self.squared.sqrt()
        self.squared = None
        return norms

    def close(self):
        for handle in self.handles:
            handle.remove()
        self.inputs.clear()


def make_data(count):
    labels = torch.randint(0, 4, (count,))
    tokens = torch.randint(0, 200, (count, 12))
    topical = labels[:, None] * 50 + torch.randint(0, 50, (count, 5))
    tokens[:, :5] = topical
    lengths = torch.rand(count, 1).mul(11).long()
    return torch.where(torch.arange(12) <= lengths, tokens, tokens[:, :1]), labels


def reference_norm(model, tokens, label):
    loss = F.cross_entropy(model(tokens[None]), label[None])
    params = list(model.fc1.parameters()) + list(model.fc2.parameters())
    grads = torch.autograd.grad(loss, params)
    return torch.cat([g.flatten() for g in grads]).norm().item()


def main():
    model = TextClassifier()
    tokens, labels = make_data(320)
    val_tokens, val_labels = make_data(96)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    norms = PerSampleNorms(model)
    for epoch in range(4):
        for xb, yb in zip(tokens.split(BATCH), labels.split(BATCH)):
            loss = F.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            last = norms.take()
            before_step = {k: v.clone() for k, v in model.state_dict().items()}
            optimizer.step()
        with torch.no_grad():
            correct = sum(
                (model(xb).argmax(dim=1) == yb).sum().item()
                for xb, yb in zip(val_tokens.split(BATCH), val_labels.split(BATCH))
            )
        print(f"epoch {epoch}: val accuracy {correct / 96:.3f}, largest sample norm {last.max():.3f}")
    norms.close()

    model.load_state_dict(before_step)
    exact = torch.tensor([reference_norm(model, t, y) for t, y in zip(xb, yb)])
    error = ((last - exact).abs() / exact).max().item()
    print(f"largest relative error of the last batch's norms: {error:.3f}")


if __name__ == "__main__":
    main()
