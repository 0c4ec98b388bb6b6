"""TracIn-style influence scores; post-accumulate hooks write each example's gradient to a matrix row."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(33)
torch.set_num_threads(1)


class ScoreNet(nn.Module):
    def __init__(self, inputs=6, hidden=16, classes=2):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.head(self.body(x))


class GradientRows:
    """One row per example; the gradient leaves .grad as soon as it has been copied."""

    def __init__(self, params):
        self.params = list(params)
        self.width = sum(p.numel() for p in self.params)
        self.row = None
        self.handles = []

    def __enter__(self):
        offset = 0
        for param in self.params:
            hook = self.make_hook(offset)
            self.handles.append(param.register_post_accumulate_grad_hook(hook))
            offset += param.numel()
        return self

    def __exit__(self, *exc):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        self.row = None

    def make_hook(self, offset):
        def move(param):
            self.row[offset:offset + param.numel()].copy_(param.grad.flatten())
            param.grad = None
        return move

    def collect(self, model, inputs, labels):
        matrix = torch.zeros(len(inputs), self.width)
        for i in range(len(inputs)):
            self.row = matrix[i]
            F.cross_entropy(model(inputs[i:i + 1]), labels[i:i + 1]).backward()
        return matrix


def make_data(count, generator):
    inputs = torch.randn(count, 6, generator=generator)
    labels = (inputs[:, 0] + 0.5 * inputs[:, 1] > 0).long()
    return inputs, labels


def main():
    generator = torch.Generator().manual_seed(41)
    inputs, labels = make_data(80, generator)
    test_inputs, test_labels = make_data(20, generator)
    wrong = torch.randperm(80, generator=generator)[:8]
    labels[wrong] = 1 - labels[wrong]

    model = ScoreNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    scores = torch.zeros(80)
    for epoch in range(30):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        if epoch % 10 == 9:
            optimizer.zero_grad()
            with GradientRows(model.parameters()) as rows:
                train_rows = rows.collect(model, inputs, labels)
                test_rows = rows.collect(model, test_inputs, test_labels)
            scores += 0.2 * (train_rows @ test_rows.t()).mean(dim=1)
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}  mean influence {scores.mean().item():+.4f}")

    harmful = set(scores.argsort()[:8].tolist())
    found = len(harmful & set(wrong.tolist()))
    print(f"most harmful example: {scores.argmin().item()}")
    print(f"flipped labels among the 8 most harmful examples: {found}")


if __name__ == "__main__":
    main()
