"""Linear model on data with outliers; gradient clipping attached to the optimizer."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(14)
torch.set_num_threads(1)

MAX_NORM = 1.0
LEARNING_RATE = 0.05


class DemandModel(nn.Module):
    def __init__(self, features=8, hidden=16):
        super().__init__()
        self.hidden = nn.Linear(features, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.out(F.softplus(self.hidden(x))).squeeze(-1)


def make_data(n=400, features=8):
    x = torch.randn(n, features)
    y = x @ torch.randn(features) + 0.1 * torch.randn(n)
    y[::40] *= 25.0
    return x, y


class ClosureTrainer:
    """Works with every torch optimizer, also those that evaluate the loss several times."""

    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer
        self.optimizer.register_step_pre_hook(self.clip)
        self.largest_step = 0.0

    def clip(self, optimizer, args, kwargs):
        for group in optimizer.param_groups:
            nn.utils.clip_grad_norm_(group["params"], MAX_NORM)

    def flat_weights(self):
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])

    def train_batch(self, x, y):
        def closure():
            self.optimizer.zero_grad()
            loss = F.mse_loss(self.model(x), y)
            loss.backward()
            return loss

        before = self.flat_weights()
        loss = self.optimizer.step(closure)
        step = (self.flat_weights() - before).norm().item() / LEARNING_RATE
        self.largest_step = max(self.largest_step, step)
        return loss.item()


def main():
    x, y = make_data()
    model = DemandModel()
    trainer = ClosureTrainer(model, torch.optim.SGD(model.parameters(), lr=LEARNING_RATE))

    for epoch in range(6):
        losses = []
        for batch in torch.randperm(len(x)).split(20):
            losses.append(trainer.train_batch(x[batch], y[batch]))
        losses.sort()
        print(f"epoch {epoch}: median batch loss {losses[len(losses) // 2]:.3f}")

    print(f"largest step {trainer.largest_step:.2f} x learning rate (limit {MAX_NORM:.2f})")


if __name__ == "__main__":
    main()
