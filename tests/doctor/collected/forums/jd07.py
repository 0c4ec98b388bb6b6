"""Mixed-precision training of a regressor whose outliers need clipped gradients."""
import torch
import torch.nn as nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Regressor(nn.Module):
    def __init__(self, dim=8, hidden=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim, hidden), nn.SiLU(),
            nn.Linear(hidden, hidden), nn.SiLU(),
            nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def make_data(n=512):
    x = torch.randn(n, 8)
    y = x[:, 0] * x[:, 1] + x[:, 2]
    y[::50] += 15 * torch.randn(len(y[::50]))
    return x, y


class Trainer:
    def __init__(self, model, lr=0.1, clip=0.5):
        self.model = model
        self.clip = clip
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 14)
        for param in model.parameters():
            param.register_hook(self.clip_gradient)

    def clip_gradient(self, grad):
        return grad.clamp(-self.clip, self.clip)

    def step(self, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pred = self.model(x)
        loss = nn.functional.smooth_l1_loss(pred.float(), y)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()

    def fit(self, x, y, epochs=15, batch_size=64):
        history = []
        for _ in range(epochs):
            losses = [self.step(x[i], y[i]) for i in torch.randperm(len(x)).split(batch_size)]
            history.append(sum(losses) / len(losses))
        return history


def main():
    x, y = make_data()
    trainer = Trainer(Regressor())
    history = trainer.fit(x, y)
    for epoch in (0, 4, 9, 14):
        print(f"epoch {epoch}: loss {history[epoch]:.3f}")
    gain = 100 * (1 - history[-1] / history[0])
    print(f"loss reduced by {'less' if gain < 15 else 'more'} than 15 percent")


if __name__ == "__main__":
    main()
