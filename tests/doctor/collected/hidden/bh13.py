"""Gradient noise scale from micro-batches: tensor hooks see each micro-batch gradient before it is accumulated."""
import torch
from torch import nn

torch.manual_seed(113)
MICRO, ACCUM = 16, 8


class PolicyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 3))

    def forward(self, obs):
        return torch.distributions.Categorical(logits=self.net(obs))


class NoiseScale:
    """Simple noise scale B = tr(S) / |G|^2, estimated from the norms of small and big batch gradients."""

    def __init__(self, params):
        self.small = []
        self._squares = 0.0
        for p in params:
            p.register_hook(self.watch)

    def watch(self, grad):
        # grad belongs to this backward call alone; the sum is built in .grad afterwards
        self._squares += grad.pow(2).sum().item()

    def end_micro_batch(self):
        self.small.append(self._squares * ACCUM ** 2)      # the loss had been divided by ACCUM
        self._squares = 0.0

    def estimate(self, big_square):
        small = sum(self.small) / len(self.small)
        self.small = []
        b_small, b_big = MICRO, MICRO * ACCUM
        g2 = (b_big * big_square - b_small * small) / (b_big - b_small)
        s = (small - big_square) / (1 / b_small - 1 / b_big)
        return s / max(g2, 1e-8)


policy = PolicyNet()
scale = NoiseScale(policy.parameters())
optimizer = torch.optim.SGD(policy.parameters(), lr=0.3)

for update in range(30):
    optimizer.zero_grad()
    rewards = []
    for _ in range(ACCUM):
        obs = torch.randn(MICRO, 5)
        dist = policy(obs)
        act = dist.sample()
        reward = (act == obs[:, :3].argmax(dim=1)).float()
        rewards.append(reward.mean().item())
        loss = -(dist.log_prob(act) * (reward - 0.33)).mean()
        (loss / ACCUM).backward()
        scale.end_micro_batch()
    big = sum(p.grad.pow(2).sum().item() for p in policy.parameters())
    b = scale.estimate(big)
    optimizer.step()
    if update % 10 == 9:
        print(f"update {update + 1}: reward {sum(rewards) / ACCUM:.3f}  noise scale {b:.0f}")

print(f"policy updates 30, micro-batches {30 * ACCUM}")
