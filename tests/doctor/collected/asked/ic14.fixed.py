"""How far does the gradient reach back in time? Per-step gradient norms of a GRU."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(8)
torch.set_num_threads(1)

STEPS = 12


class SequenceClassifier(nn.Module):
    def __init__(self, inputs=4, hidden=20, classes=2):
        super().__init__()
        self.hidden = hidden
        self.cell = nn.GRUCell(inputs, hidden)
        self.head = nn.Linear(hidden, classes)
        self.grad_norms = None

    def watch(self):
        self.grad_norms = [0.0] * STEPS

    def unwatch(self):
        norms, self.grad_norms = self.grad_norms, None
        return norms

    def forward(self, x):
        state = x.new_zeros(x.size(0), self.hidden)
        for t in range(x.size(1)):
            state = self.cell(x[:, t], state)
            if self.grad_norms is not None:
                def log_norm(grad, t=t):
                    self.grad_norms[t] += grad.norm().item()
                state.register_hook(log_norm)
        return self.head(state)


def make_sequences(count):
    x = 0.5 * torch.randn(count, STEPS, 4)
    labels = torch.randint(0, 2, (count,))
    x[:, 1, 0] += 2.0 * (labels.float() * 2 - 1)
    return x, labels


def train(model, steps=80):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        x, labels = make_sequences(64)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1}: loss {loss.item():.3f}")


def gradient_reach(model, batches=4):
    model.watch()
    for _ in range(batches):
        x, labels = make_sequences(64)
        model.zero_grad()
        F.cross_entropy(model(x), labels).backward()
    model.zero_grad()
    return [value / batches for value in model.unwatch()]


@torch.no_grad()
def evaluate(model):
    x, labels = make_sequences(400)
    return (model(x).argmax(1) == labels).float().mean().item()


def main():
    model = SequenceClassifier()
    before = gradient_reach(model)
    train(model)
    print(f"accuracy {evaluate(model):.2f}")
    after = gradient_reach(model)
    print("step   untrained   trained")
    for t in range(STEPS):
        print(f"{t:4d}   {before[t]:.6f}    {after[t]:.6f}")
    reach = sum(1 for value in after if value > 0)
    print(f"steps reached by the gradient: {reach} of {STEPS}")


if __name__ == "__main__":
    main()
