"""Training with annealed gradient noise (Neelakantan et al.), compared with training without noise."""
import torch
import torch.nn.functional as F
from torch import nn


class AnnealedNoise:
    def __init__(self, eta, gamma=0.55):
        self.eta, self.gamma = eta, gamma
        self.t = 0
        self.history = []

    def __call__(self, grad):
        std = (self.eta / (1 + self.t) ** self.gamma) ** 0.5
        noisy = grad + std * torch.randn_like(grad)
        self.history.append(noisy.norm().item())


class Autoencoder(nn.Module):
    def __init__(self, dims=(10, 6, 3)):
        super().__init__()
        self.down = nn.ModuleList(nn.Linear(a, b) for a, b in zip(dims, dims[1:]))
        self.up = nn.ModuleList(nn.Linear(b, a) for a, b in reversed(list(zip(dims, dims[1:]))))

    def forward(self, x):
        for layer in self.down:
            x = torch.tanh(layer(x))
        for layer in self.up[:-1]:
            x = torch.tanh(layer(x))
        return self.up[-1](x)


class Experiment:
    def __init__(self, eta, seed=0):
        torch.manual_seed(seed)
        self.data = torch.randn(8, 32, 10)
        self.model = Autoencoder()
        self.noises = {}
        for name, p in self.model.named_parameters():
            self.noises[name] = AnnealedNoise(eta)
            p.register_hook(self.noises[name])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def run(self):
        for x in self.data:
            self.optimizer.zero_grad()
            loss = F.mse_loss(self.model(x), x)
            loss.backward()
            self.optimizer.step()
            for noise in self.noises.values():
                noise.t += 1
        return loss.item()


def main():
    for eta in (0.0, 0.3, 1.0):
        experiment = Experiment(eta)
        final = experiment.run()
        logged = experiment.noises["down.0.weight"].history[-1]
        used = experiment.model.down[0].weight.grad.norm().item()
        print(f"eta {eta}: final loss {final:.6f}, logged gradient norm {logged:.3f}, .grad norm {used:.3f}")


if __name__ == "__main__":
    main()
