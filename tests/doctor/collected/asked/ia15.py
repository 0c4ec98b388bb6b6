"""LSTM regression with gradient accumulation and a limit on each parameter's gradient norm."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(14)
torch.set_num_threads(1)

MAX_NORM = 0.5


class SequenceModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        states, _ = self.rnn(x)
        return self.out(states[:, -1]).squeeze(-1)


def limit_norm(grad):
    norm = grad.norm()
    if norm > MAX_NORM:
        return grad * (MAX_NORM / norm)
    return grad


class Trainer:
    def __init__(self, model, accumulate):
        self.model = model
        self.accumulate = accumulate
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        self.largest = 0.0
        for p in model.parameters():
            p.register_hook(limit_norm)

    def step(self):
        self.optimizer.step()
        for p in self.model.parameters():
            self.largest = max(self.largest, p.grad.norm().item())
        self.optimizer.zero_grad()

    def fit(self, x, y, epochs):
        for epoch in range(epochs):
            total = 0.0
            for i, batch in enumerate(torch.randperm(len(x)).split(16)):
                loss = F.mse_loss(self.model(x[batch]), y[batch])
                loss.backward()
                total += loss.item() * len(batch)
                if (i + 1) % self.accumulate == 0:
                    self.step()
            print(f"epoch {epoch}: mse {total / len(x):.4f}")


def main():
    x = torch.randn(256, 10, 4)
    y = 3.0 * x[:, -3:, 0].sum(dim=1) - 2.0 * x[:, -1, 1]
    trainer = Trainer(SequenceModel(), accumulate=4)
    trainer.fit(x, y, epochs=6)
    excess = trainer.largest > MAX_NORM * 1.001
    print(f"largest gradient norm of an update: {trainer.largest:.3f} (limit {MAX_NORM})")
    print("limit exceeded" if excess else "limit respected")


if __name__ == "__main__":
    main()
