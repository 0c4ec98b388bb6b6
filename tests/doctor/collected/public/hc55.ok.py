"""Two-task learning: a tensor hook on the shared features measures how the tasks disagree."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(29)

STEPS = 120
BATCH = 48


class TwoTaskNet(nn.Module):
    def __init__(self, n_in=10, hidden=24):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(n_in, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.sign_head = nn.Linear(hidden, 2)
        self.value_head = nn.Linear(hidden, 1)

    def forward(self, x):
        features = self.shared(x)
        return features, self.sign_head(features), self.value_head(features).squeeze(-1)


class GradientBalancer:
    """Task weights follow the inverse of the running gradient norms at the shared features."""

    def __init__(self, n_tasks, momentum=0.9):
        self.running = [None] * n_tasks
        self.momentum = momentum

    def observe(self, gradients):
        for i, grad in enumerate(gradients):
            norm = grad.norm().item()
            old = self.running[i]
            self.running[i] = norm if old is None else self.momentum * old + (1 - self.momentum) * norm

    def weights(self):
        inverse = [1.0 / (norm + 1e-8) for norm in self.running]
        return [len(inverse) * value / sum(inverse) for value in inverse]


def make_data(n=600):
    gen = torch.Generator().manual_seed(10)
    x = torch.randn(n, 10, generator=gen)
    labels = (x[:, 0] - x[:, 1] > 0).long()
    values = 5.0 * torch.tanh(x[:, 0] + x[:, 2])
    return x, labels, values


def task_gradients(features, losses):
    """One partial backward per task, from the loss to the shared features and no further."""
    collected = []
    handle = features.register_hook(lambda grad: collected.append(grad.detach().flatten()))
    for loss in losses:
        torch.autograd.grad(loss, features, retain_graph=True)
    handle.remove()
    return collected


def main():
    x, labels, values = make_data()
    model = TwoTaskNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=60, gamma=0.5)
    balancer = GradientBalancer(n_tasks=2)
    gen = torch.Generator().manual_seed(0)
    cosines = []

    for step in range(1, STEPS + 1):
        rows = torch.randint(0, 480, (BATCH,), generator=gen)
        features, logits, predictions = model(x[rows])
        losses = [F.cross_entropy(logits, labels[rows]), F.mse_loss(predictions, values[rows])]
        gradients = task_gradients(features, losses)
        balancer.observe(gradients)
        cosines.append(F.cosine_similarity(gradients[0], gradients[1], dim=0).item())

        total = sum(weight * loss for weight, loss in zip(balancer.weights(), losses))
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        scheduler.step()
        if step % 40 == 0:
            w = balancer.weights()
            print(f"step {step}  losses {losses[0].item():.3f} {losses[1].item():.3f}  "
                  f"weights {w[0]:.2f} {w[1]:.2f}  cosine {sum(cosines[-40:]) / 40:+.3f}")

    with torch.no_grad():
        _, logits, predictions = model(x[480:])
    print(f"accuracy {(logits.argmax(1) == labels[480:]).float().mean().item():.3f}  "
          f"mse {F.mse_loss(predictions, values[480:]).item():.3f}  pairs compared {len(cosines)}")


if __name__ == "__main__":
    main()
