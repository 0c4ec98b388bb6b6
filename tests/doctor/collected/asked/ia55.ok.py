"""Top-k gradient sparsification with error feedback, done in tensor hooks.

Whatever is not sent in one step is remembered and added to the next gradient.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(55)
torch.set_num_threads(1)


class ErrorFeedback:
    def __init__(self, param, ratio):
        self.memory = torch.zeros_like(param, requires_grad=False)
        self.keep = max(1, int(param.numel() * ratio))
        self.sent = 0
        self.seen = 0

    def __call__(self, grad):
        corrected = grad + self.memory
        flat = corrected.flatten()
        index = flat.abs().topk(self.keep).indices
        sparse = torch.zeros_like(flat)
        sparse[index] = flat[index]
        sparse = sparse.view_as(grad)
        self.memory.copy_(corrected - sparse)
        self.sent += self.keep
        self.seen += grad.numel()
        return sparse


class Compression:
    def __init__(self, model, ratio):
        self.states = {}
        self.handles = []
        for name, p in model.named_parameters():
            if p.dim() < 2:
                continue
            state = ErrorFeedback(p, ratio)
            self.states[name] = state
            self.handles.append(p.register_hook(state))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for handle in self.handles:
            handle.remove()

    def traffic(self):
        sent = sum(s.sent for s in self.states.values())
        return sent / sum(s.seen for s in self.states.values())


def build():
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))


def epoch_loss(model, optimizer, x, y):
    total = 0.0
    for batch in torch.randperm(len(x)).split(32):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    return total / len(x)


def main():
    x = torch.randn(384, 20)
    y = (x @ torch.randn(20, 3)).argmax(dim=1)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    with Compression(model, ratio=0.05) as compression:
        for epoch in range(12):
            loss = epoch_loss(model, optimizer, x, y)
            if epoch % 4 == 3:
                print(f"compressed epoch {epoch}: loss {loss:.4f}")
        entries = [int((p.grad != 0).sum()) for p in model.parameters() if p.dim() == 2]
    print("entries in the last compressed gradients:", entries)
    print(f"share of the gradient sent: {compression.traffic():.3f}")

    print(f"uncompressed epoch: loss {epoch_loss(model, optimizer, x, y):.4f}")
    with torch.no_grad():
        print(f"accuracy {(model(x).argmax(1) == y).float().mean().item():.3f}")


if __name__ == "__main__":
    main()
