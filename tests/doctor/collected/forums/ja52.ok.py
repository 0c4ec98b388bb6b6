"""Optimizer fused into backward: every parameter is updated and its gradient dropped at once."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class Autoencoder(nn.Module):
    def __init__(self, features=24, code=4):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, code))
        self.decode = nn.Sequential(nn.Linear(code, 32), nn.ReLU(), nn.Linear(32, features))

    def forward(self, x):
        return self.decode(self.encode(x))


class FusedAdam:
    """One Adam per parameter, driven by post-accumulate-grad hooks."""

    def __init__(self, model, lr):
        self.optimizers = {}
        self.handles = []
        for param in model.parameters():
            self.optimizers[param] = torch.optim.Adam([param], lr=lr)
            self.handles.append(param.register_post_accumulate_grad_hook(self.update))

    def update(self, param):
        optimizer = self.optimizers[param]
        optimizer.step()
        optimizer.zero_grad()

    def set_lr(self, lr):
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = lr

    def detach(self):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


def make_data(n=256, features=24):
    generator = torch.Generator().manual_seed(1)
    basis = torch.randn(4, features, generator=generator)
    return torch.tanh(torch.randn(n, 4, generator=generator) @ basis)


def batches(x, epochs, size=32):
    generator = torch.Generator().manual_seed(2)
    for _ in range(epochs):
        for index in torch.randperm(len(x), generator=generator).split(size):
            yield x[index]


def train_fused(x, epochs):
    torch.manual_seed(52)
    model = Autoencoder()
    fused = FusedAdam(model, lr=3e-3)
    for step, batch in enumerate(batches(x, epochs)):
        if step == 60:
            fused.set_lr(1e-3)
        loss = F.mse_loss(model(batch), batch)
        loss.backward()
    held = sum(p.grad is not None for p in model.parameters())
    fused.detach()
    return model, loss.item(), held


def train_plain(x, epochs):
    torch.manual_seed(52)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step, batch in enumerate(batches(x, epochs)):
        if step == 60:
            optimizer.param_groups[0]["lr"] = 1e-3
        loss = F.mse_loss(model(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, loss.item()


def main():
    x = make_data()
    fused, fused_loss, held = train_fused(x, epochs=15)
    plain, plain_loss = train_plain(x, epochs=15)
    print(f"fused loss {fused_loss:.4f}  plain loss {plain_loss:.4f}")
    print(f"gradients held after a fused step: {held}")
    same = all(torch.allclose(a, b, atol=1e-5) for a, b in zip(fused.parameters(), plain.parameters()))
    print(f"same weights: {same}")


if __name__ == "__main__":
    main()
