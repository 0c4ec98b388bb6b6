"""Forecasting a noisy series with an unrolled ReLU recurrent cell and a bounded hidden state."""
import torch
from torch import nn
import torch.nn.functional as F


class BoundedRNN(nn.Module):
    """The ReLU cell can grow without limit, so its state is kept below `limit`."""

    def __init__(self, hidden=24, limit=2.0):
        super().__init__()
        self.hidden = hidden
        self.limit = limit
        self.cell = nn.RNNCell(1, hidden, nonlinearity="relu")
        self.readout = nn.Linear(hidden, 1)
        nn.init.eye_(self.cell.weight_hh)
        self.cell.register_forward_hook(self._bound_state)

    def _bound_state(self, module, inputs, output):
        return output.clamp(max=self.limit)

    def encode(self, series):
        state = series.new_zeros(series.shape[0], self.hidden)
        states = []
        for step in range(series.shape[1]):
            state = self.cell(series[:, step, None], state)
            states.append(state)
        return torch.stack(states, dim=1)

    def forward(self, series):
        return self.readout(self.encode(series)).squeeze(-1)


def make_series(count, length):
    time = torch.arange(length + 1) / 6.0
    phase = 6.28 * torch.rand(count, 1)
    level = torch.rand(count, 1)
    series = torch.sin(time + phase) + level + 0.05 * torch.randn(count, length + 1)
    return series[:, :-1], series[:, 1:]


class Trainer:
    def __init__(self, model, lr=2e-3):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def fit(self, inputs, targets, epochs, batch_size=50):
        for epoch in range(epochs):
            losses = []
            for rows in torch.randperm(len(inputs)).split(batch_size):
                loss = F.mse_loss(self.model(inputs[rows]), targets[rows])
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                losses.append(loss.item())
            print(f"epoch {epoch}: mse {sum(losses) / len(losses):.4f}")

    @torch.no_grad()
    def evaluate(self, inputs, targets):
        states = self.model.encode(inputs)
        error = F.mse_loss(self.model(inputs), targets).item()
        return error, states.max().item()


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    train_inputs, train_targets = make_series(300, 40)
    test_inputs, test_targets = make_series(100, 80)
    model = BoundedRNN()
    trainer = Trainer(model)
    trainer.fit(train_inputs, train_targets, epochs=4)
    error, largest = trainer.evaluate(test_inputs, test_targets)
    verdict = "within the limit" if largest <= model.limit else "above the limit"
    print(f"test mse {error:.4f}, largest state {largest:.2f} ({verdict} of {model.limit:.2f})")


if __name__ == "__main__":
    main()
