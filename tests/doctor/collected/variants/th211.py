"""Knowledge distillation with per-parameter gradient noise on the student."""
import torch
import torch.nn.functional as F
from torch import nn


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class NoisyGradient:
    def __init__(self, std):
        self.std, self.calls = std, 0

    def __call__(self, grad):
        self.calls += 1
        return grad + self.std * torch.randn_like(grad)


class Distiller:
    def __init__(self, teacher, student, noise, temperature=2.0):
        self.teacher = teacher.requires_grad_(False).eval()
        self.student, self.noise, self.t = student, noise, temperature
        self.optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

    def compute_loss(self, x):
        handles = [p.register_hook(self.noise) for p in self.student.parameters()]
        try:
            with torch.no_grad():
                target = (self.teacher(x) / self.t).softmax(-1)
            log_probs = (self.student(x) / self.t).log_softmax(-1)
            return F.kl_div(log_probs, target, reduction="batchmean") * self.t**2
        finally:
            for handle in handles:
                handle.remove()

    def train_step(self, x):
        self.optimizer.zero_grad()
        loss = self.compute_loss(x)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def run(std):
    torch.manual_seed(0)
    noise = NoisyGradient(std)
    distiller = Distiller(mlp(8, 64, 5), mlp(8, 16, 5), noise)
    data = torch.randn(6, 32, 8)
    losses = [distiller.train_step(x) for x in data]
    checksum = sum(p.abs().sum().item() for p in distiller.student.parameters())
    print(f"noise {std}: calls {noise.calls}, last loss {losses[-1]:.5f}, sum of weights {checksum:.6f}")


def main():
    for std in (0.0, 1.0):
        run(std)


if __name__ == "__main__":
    main()
