"""Logs the gradient norm of every layer during training of a tabular regressor."""
from collections import defaultdict

import torch
import torch.nn as nn

torch.manual_seed(4)
torch.set_num_threads(1)


class Regressor(nn.Module):
    def __init__(self, features=12, hidden=32):
        super().__init__()
        self.input_layer = nn.Linear(features, hidden)
        self.hidden_layer = nn.Linear(hidden, hidden)
        self.output_layer = nn.Linear(hidden, 1)
        self.act = nn.SiLU()

    def forward(self, x):
        x = self.act(self.input_layer(x))
        x = self.act(self.hidden_layer(x))
        return self.output_layer(x).squeeze(1)


class GradNormLogger:
    def __init__(self, model):
        self.history = defaultdict(list)
        self.handles = []
        for name, module in model.named_children():
            if isinstance(module, nn.Linear):
                self.handles.append(module.register_full_backward_hook(self.make_hook(name)))

    def make_hook(self, name):
        def hook(module, grad_input, grad_output):
            grad = module.weight.grad
            self.history[name].append(0.0 if grad is None else grad.norm().item())
        return hook

    def summary(self):
        return {name: sum(values) / len(values) for name, values in self.history.items()}

    def close(self):
        for handle in self.handles:
            handle.remove()


class Trainer:
    def __init__(self, model, lr=1e-2):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.logger = GradNormLogger(model)

    def step(self, inputs, targets):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(inputs), targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, inputs, targets, epochs=4, batch_size=64):
        for epoch in range(epochs):
            order = torch.randperm(len(inputs))
            losses = []
            for start in range(0, len(order), batch_size):
                index = order[start:start + batch_size]
                losses.append(self.step(inputs[index], targets[index]))
            print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}")
        self.logger.close()


def make_data(count=512, features=12):
    inputs = torch.randn(count, features)
    weights = torch.randn(features)
    targets = torch.tanh(inputs @ weights) + 0.3 * inputs[:, 0] * inputs[:, 1]
    return inputs, targets + 0.05 * torch.randn(count)


def main():
    inputs, targets = make_data()
    trainer = Trainer(Regressor())
    trainer.fit(inputs, targets)
    summary = trainer.logger.summary()
    print("mean gradient norm of the weights")
    for name in ("input_layer", "hidden_layer", "output_layer"):
        print(f"  {name:<13} {summary[name]:.4f}")


if __name__ == "__main__":
    main()
