"""Clip the joint gradient of a policy head and a value head with one multi-grad hook."""
import torch
from torch import nn
from torch.autograd.graph import register_multi_grad_hook

torch.set_num_threads(1)
LIMIT = 0.5


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 32)
        self.policy = nn.Linear(32, 4)
        self.value = nn.Linear(32, 1)

    def forward(self, obs):
        h = torch.tanh(self.body(obs))
        return self.policy(h), self.value(h).squeeze(-1)


def install_clipping(module, limit):
    params = list(module.parameters())

    def clip(grads):
        # all gradients are there at once, so the joint norm is known
        norm = torch.stack([g.norm() for g in grads if g is not None]).norm()
        scale = torch.clamp(limit / (norm + 1e-6), max=1.0)
        return tuple(None if g is None else g * scale for g in grads)

    return register_multi_grad_hook(params, clip)


def joint_norm(module):
    return torch.stack([p.grad.norm() for p in module.parameters()]).norm().item()


def rollout(step):
    g = torch.Generator().manual_seed(step)
    obs = torch.randn(64, 6, generator=g)
    actions = torch.randint(0, 4, (64,), generator=g)
    returns = 10.0 * torch.randn(64, generator=g) + 5.0
    return obs, actions, returns


def main():
    torch.manual_seed(0)
    model = ActorCritic()
    install_clipping(model, LIMIT)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    worst = 0.0
    for step in range(5):
        obs, actions, returns = rollout(step)
        logits, values = model(obs)
        advantage = (returns - values).detach()
        logp = nn.functional.log_softmax(logits, dim=1)[torch.arange(64), actions]
        loss = -(logp * advantage).mean() + nn.functional.mse_loss(values, returns)
        opt.zero_grad()
        loss.backward()
        norm = joint_norm(model)
        worst = max(worst, norm)
        opt.step()
        print(f"step {step} loss {loss.item():9.3f} gradient norm at the step {norm:7.3f}")
    print("limit kept:", worst <= LIMIT + 1e-3)


if __name__ == "__main__":
    main()
