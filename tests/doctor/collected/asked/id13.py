import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(4)


class ForecastNet(nn.Module):
    def __init__(self, window=16, hidden=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(window, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


def make_series(n=600, window=16):
    t = torch.arange(n + window, dtype=torch.float32)
    series = torch.sin(0.2 * t) + 0.3 * torch.sin(0.05 * t) + 0.05 * torch.randn(n + window)
    x = series.unfold(0, window, 1)[:n]
    y = series[window : window + n]
    return x, y


class Trainer:
    def __init__(self, model, lr=0.1, clip_value=0.5):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
        self.clip_value = clip_value
        for param in model.parameters():
            param.register_hook(self._clip)

    def _clip(self, grad):
        bound = self.clip_value
        return grad.clamp(-bound, bound)

    def train_step(self, x, y):
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            prediction = self.model(x)
        loss = nn.functional.mse_loss(prediction.float(), y)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()

    def fit(self, x, y, epochs=8, batch_size=50):
        history = []
        for epoch in range(epochs):
            losses = []
            for start in range(0, len(x), batch_size):
                losses.append(
                    self.train_step(x[start : start + batch_size], y[start : start + batch_size])
                )
            history.append(sum(losses) / len(losses))
        return history


def main():
    x, y = make_series()
    order = torch.randperm(len(x))
    trainer = Trainer(ForecastNet())
    history = trainer.fit(x[order], y[order])
    for epoch in (0, len(history) - 1):
        print(f"epoch {epoch}: loss {history[epoch]:.4f}")
    print(f"loss is now {100 * history[-1] / history[0]:.0f} percent of the first epoch")


if __name__ == "__main__":
    main()
