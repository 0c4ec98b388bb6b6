"""Mixed-precision training of a regression network with gradient value clipping."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(7)
torch.set_num_threads(1)

CLIP_VALUE = 0.5


class PriceNet(nn.Module):
    def __init__(self, features, hidden=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(features, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


def make_data(n=512, features=12):
    x = torch.randn(n, features)
    weight = torch.randn(features)
    y = x @ weight + 0.3 * (x[:, 0] * x[:, 1])
    y[::97] += 40.0
    return x, y


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 14)
        self.optimizer.register_step_pre_hook(self.clip_gradients)

    def clip_gradients(self, optimizer, args, kwargs):
        nn.utils.clip_grad_value_(self.model.parameters(), CLIP_VALUE)

    def step(self, x, y):
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            prediction = self.model(x)
        loss = F.smooth_l1_loss(prediction.float(), y)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()

    def fit(self, x, y, epochs, batch_size=64):
        history = []
        for epoch in range(epochs):
            losses = []
            for batch in torch.randperm(len(x)).split(batch_size):
                losses.append(self.step(x[batch], y[batch]))
            history.append(sum(losses) / len(losses))
        return history


def main():
    x, y = make_data()
    model = PriceNet(x.shape[1])
    trainer = Trainer(model, lr=0.02)
    history = trainer.fit(x, y, epochs=15)
    for epoch in (0, 4, 9, 14):
        print(f"epoch {epoch + 1:2d}: loss {history[epoch]:.3f}")
    reduction = 100 * (1 - history[-1] / history[0])
    print(f"loss reduced by {reduction:.0f}%")


if __name__ == "__main__":
    main()
