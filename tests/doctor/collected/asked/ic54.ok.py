"""Recurrent network whose state gradient is clipped at every time step."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(18)
torch.set_num_threads(1)


class ClippedRNN(nn.Module):
    def __init__(self, inputs=3, hidden=24, limit=0.02):
        super().__init__()
        self.hidden = hidden
        self.limit = limit
        self.clipped = {}
        self.cell = nn.RNNCell(inputs, hidden)
        self.readout = nn.Linear(hidden, 1)
        nn.init.orthogonal_(self.cell.weight_hh, gain=1.6)

    def clip_at(self, step):
        def clip(grad):
            norms = grad.norm(dim=1, keepdim=True)
            over = norms > self.limit
            self.clipped[step] = self.clipped.get(step, 0) + int(over.sum())
            return torch.where(over, grad * (self.limit / norms.clamp(min=1e-12)), grad)
        return clip

    def forward(self, x):
        state = x.new_zeros(len(x), self.hidden)
        for step in range(x.size(1)):
            state = self.cell(x[:, step], state)
            if state.requires_grad:
                state.register_hook(self.clip_at(step))
        return self.readout(state).squeeze(1)


def adding_problem(count, length, generator):
    values = torch.rand(count, length, generator=generator)
    markers = torch.zeros(count, length)
    half = length // 2
    rows = torch.arange(count)
    first = torch.randint(0, half, (count,), generator=generator)
    second = torch.randint(half, length, (count,), generator=generator)
    markers[rows, first] = 1.0
    markers[rows, second] = 1.0
    targets = values[rows, first] + values[rows, second]
    return torch.stack([values, markers, torch.ones_like(values)], dim=2), targets


class Trainer:
    def __init__(self, model, length=10, batch_size=64):
        self.model = model
        self.length = length
        self.batch_size = batch_size
        self.optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        self.generator = torch.Generator().manual_seed(12)

    def batch(self):
        return adding_problem(self.batch_size, self.length, self.generator)

    def fit(self, steps):
        for step in range(steps):
            inputs, targets = self.batch()
            self.optimizer.zero_grad()
            loss = F.mse_loss(self.model(inputs), targets)
            loss.backward()
            self.optimizer.step()
            if step % 50 == 49:
                print(f"step {step + 1}: loss {loss.item():.4f}")

    @torch.no_grad()
    def evaluate(self, batches=5):
        total = 0.0
        for _ in range(batches):
            inputs, targets = self.batch()
            total += F.mse_loss(self.model(inputs), targets).item()
        return total / batches


def main():
    model = ClippedRNN()
    trainer = Trainer(model)
    steps = 150
    trainer.fit(steps)
    seen = steps * trainer.batch_size
    for step in sorted(model.clipped):
        print(f"time step {step}: clipped {100 * model.clipped[step] / seen:.1f}% of the state gradients")
    print(f"test loss {trainer.evaluate():.4f}")


if __name__ == "__main__":
    main()
