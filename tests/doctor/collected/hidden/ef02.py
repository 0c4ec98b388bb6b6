"""Dead-unit report for a policy network after training with a large learning rate."""
import torch
import torch.nn as nn


class Policy(nn.Module):
    def __init__(self, obs=10, width=64, actions=4):
        super().__init__()
        self.fc1 = nn.Linear(obs, width)
        self.fc2 = nn.Linear(width, width)
        self.fc3 = nn.Linear(width, width)
        self.out = nn.Linear(width, actions)
        self.act = nn.ReLU()

    def forward(self, x):
        x = self.act(self.fc1(x))
        x = self.act(self.fc2(x))
        x = self.act(self.fc3(x))
        return self.out(x)


class DeadUnitLog:
    """Remembers for every ReLU of the network which units were positive at least once."""

    def __init__(self, model):
        self.alive = {}
        self.handles = []
        for name, module in model.named_modules():
            if isinstance(module, nn.ReLU):
                self.handles.append(module.register_forward_hook(self._make(name)))

    def _make(self, name):
        def hook(module, args, out):
            fired = (out.detach() > 0).any(0)
            if name in self.alive:
                self.alive[name] |= fired
            else:
                self.alive[name] = fired
        return hook

    def report(self):
        for name, mask in self.alive.items():
            dead = int((~mask).sum())
            print(f"{name:8s} units {mask.numel():3d}  dead {dead:3d}  ({100 * dead / mask.numel():.0f}%)")

    def close(self):
        for h in self.handles:
            h.remove()


def fit(model, obs, target, steps=60):
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(obs), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    torch.manual_seed(1)
    obs = torch.randn(512, 10)
    target = torch.sin(obs[:, :4])
    model = Policy()
    with torch.no_grad():  # the checkpoint we analyse has a badly initialised second layer
        model.fc2.bias[:24] -= 6.0
        model.fc3.bias[40:50] -= 6.0
    print(f"final loss {fit(model, obs, target):.4f}")
    log = DeadUnitLog(model)
    model.eval()
    with torch.no_grad():
        for batch in obs.split(64):
            model(batch)
    log.report()
    log.close()


if __name__ == "__main__":
    main()
