"""Per-parameter optimizers that run inside the backward pass, with gradient accumulation.

Only the last micro-batch of a group updates the weights; until then the hooks
leave the gradients where they are.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(53)
torch.set_num_threads(1)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(24, 8)
        self.decode = nn.Linear(8, 24)

    def forward(self, x):
        return self.decode(torch.tanh(self.encode(x)))


class BackwardOptimizer:
    def __init__(self, params, **kwargs):
        self.armed = False
        self.optimizers = {}
        self.handles = []
        for p in params:
            self.optimizers[p] = torch.optim.AdamW([p], **kwargs)
            self.handles.append(p.register_post_accumulate_grad_hook(self._apply))

    def _apply(self, param):
        if not self.armed:
            return
        optimizer = self.optimizers[param]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def backward(self, loss, last):
        self.armed = last
        try:
            loss.backward()
        finally:
            self.armed = False

    def close(self):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


def train_inside(model, data, accumulate):
    optimizer = BackwardOptimizer(model.parameters(), lr=5e-3, weight_decay=0.0)
    for i, batch in enumerate(data):
        loss = F.mse_loss(model(batch), batch) / accumulate
        optimizer.backward(loss, last=(i + 1) % accumulate == 0)
    optimizer.close()
    return model


def train_outside(model, data, accumulate):
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
    for i, batch in enumerate(data):
        (F.mse_loss(model(batch), batch) / accumulate).backward()
        if (i + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
    return model


def main():
    basis = torch.randn(6, 24)
    data = [torch.randn(16, 6) @ basis for _ in range(160)]
    inside, outside = Autoencoder(), Autoencoder()
    outside.load_state_dict(inside.state_dict())

    with torch.no_grad():
        print(f"error before: {F.mse_loss(inside(data[0]), data[0]).item():.3f}")
    train_inside(inside, data, accumulate=4)
    train_outside(outside, data, accumulate=4)
    with torch.no_grad():
        print(f"error after: {F.mse_loss(inside(data[0]), data[0]).item():.3f}")

    pairs = list(zip(inside.parameters(), outside.parameters()))
    print("same weights as with one optimizer:", all(torch.allclose(a, b, atol=1e-5) for a, b in pairs))
    print("gradients kept after training:", sum(p.grad is not None for p in inside.parameters()))


if __name__ == "__main__":
    main()
