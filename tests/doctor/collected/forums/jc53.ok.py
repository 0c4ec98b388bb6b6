"""Gradient reversal as a module: an identity whose backward hook flips the
sign; used to remove a nuisance attribute from an embedding."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(71)


class GradientReversal(nn.Identity):
    def __init__(self, strength=0.0):
        super().__init__()
        self.strength = strength
        self.register_full_backward_hook(GradientReversal.flip)

    @staticmethod
    def flip(module, grad_input, grad_output):
        return (-module.strength * grad_input[0],)


class FairModel(nn.Module):
    def __init__(self, in_features=8, width=24):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(in_features, width), nn.ReLU(), nn.Linear(width, 8))
        self.task = nn.Linear(8, 2)
        self.reverse = GradientReversal()
        self.adversary = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x):
        z = self.encoder(x)
        return self.task(z), self.adversary(self.reverse(z))


def make_data(n, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 8, generator=generator)
    task = (x[:, 0] + x[:, 1] + 0.2 * x[:, 2] > 0).long()
    group = (x[:, 5] - x[:, 6] > 0).long()
    return x, task, group


def train(strength, data, epochs=20):
    torch.manual_seed(72)
    model = FairModel()
    x, task, group = data
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(epochs):
        model.reverse.strength = strength * min(1.0, (epoch + 1) / 5)
        for rows in torch.randperm(len(x)).split(64):
            task_logits, group_logits = model(x[rows])
            loss = F.cross_entropy(task_logits, task[rows]) + F.cross_entropy(group_logits, group[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


@torch.no_grad()
def evaluate(model, data):
    x, task, group = data
    task_logits, group_logits = model(x)
    return [(logits.argmax(dim=1) == y).float().mean().item()
            for logits, y in ((task_logits, task), (group_logits, group))]


def main():
    data = make_data(512, seed=1)
    test = make_data(256, seed=2)
    for strength in (0.0, 1.0):
        model = train(strength, data)
        task_accuracy, group_accuracy = evaluate(model, test)
        print(f"strength {strength}: task accuracy {task_accuracy:.3f}, "
              f"group accuracy of the adversary {group_accuracy:.3f}")


if __name__ == "__main__":
    main()
