"""Gradient balance of two heads, watched with multi-grad hooks that return nothing."""
import torch
from torch import nn
from torch.autograd.graph import register_multi_grad_hook

torch.set_num_threads(1)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 32)
        self.policy = nn.Linear(32, 4)
        self.value = nn.Linear(32, 1)

    def forward(self, obs):
        h = torch.tanh(self.body(obs))
        return self.policy(h), self.value(h).squeeze(-1)


class Balance:
    def __init__(self, model):
        self.norms = {"policy": [], "value": []}
        self.first = 0
        self.handles = [register_multi_grad_hook(list(getattr(model, k).parameters()), self.recorder(k))
                        for k in self.norms]
        # "any": once per backward, as soon as the first of the gradients is there
        self.handles.append(register_multi_grad_hook(list(model.parameters()), self.tick, mode="any"))

    def recorder(self, key):
        def record(grads):
            present = [g.norm() for g in grads if g is not None]
            self.norms[key].append(round(torch.stack(present).norm().item(), 4))
        return record

    def tick(self, grad):
        self.first += 1

    def close(self):
        for h in self.handles:
            h.remove()


def main():
    torch.manual_seed(0)
    model = ActorCritic()
    balance = Balance(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(6):
        obs = torch.randn(64, 6)
        logits, values = model(obs)
        loss = -nn.functional.log_softmax(logits, dim=1)[:, 0].mean()
        if step % 2 == 0:                    # the critic learns every other step only
            loss = loss + nn.functional.mse_loss(values, obs.sum(dim=1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step == 4:
            balance.close()                  # enough seen
    for key, norms in balance.norms.items():
        print(f"{key:6s} {len(norms)} values", norms)
    print("backward passes watched:", balance.first)


if __name__ == "__main__":
    main()
