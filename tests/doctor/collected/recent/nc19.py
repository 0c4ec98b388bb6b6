"""Actor-critic agent on a corridor; does its hidden layer encode the agent's position?

Hidden activations of the shared trunk are collected while the agent plays. A linear probe
then predicts the position at the same time step from them.
"""
import torch
from torch import nn

torch.set_num_threads(1)
LENGTH, ROLLOUT, GAMMA = 12, 8, 0.95


class Corridor:
    def __init__(self, gen):
        self.gen = gen
        self.reset()

    def reset(self):
        self.pos, self.t = int(torch.randint(0, LENGTH, (1,), generator=self.gen)), 0
        self.goal = int(torch.randint(0, LENGTH, (1,), generator=self.gen))
        return self.observe()

    def observe(self):
        obs = torch.zeros(2 * LENGTH)
        obs[self.pos], obs[LENGTH + self.goal] = 1.0, 1.0
        return obs

    def step(self, action):
        self.pos = min(LENGTH - 1, max(0, self.pos + (1 if action else -1)))
        self.t += 1
        hit = self.pos == self.goal
        done = hit or self.t >= 20
        return (self.reset() if done else self.observe()), float(hit) - 0.02, done


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(2 * LENGTH, 48), nn.Tanh())
        self.pi, self.v = nn.Linear(48, 2), nn.Linear(48, 1)

    def forward(self, obs):
        h = self.trunk(obs)
        return self.pi(h), self.v(h).squeeze(-1)


class ActivationLog:
    def __init__(self, module):
        self.rows, self.active = [], False
        module.register_forward_hook(self.save)

    def save(self, module, args, out):
        if self.active:
            self.rows.append(out.detach())


def probe_r2(h, pos):
    x = torch.cat([h, torch.ones(len(h), 1)], 1)
    half = len(x) // 2
    reg = 1e-1 * torch.eye(x.shape[1])
    w = torch.linalg.solve(x[:half].T @ x[:half] + reg, x[:half].T @ pos[:half])
    rest = pos[half:]
    return 1 - ((x[half:] @ w - rest).pow(2).mean() / rest.var()).item()


def main():
    torch.manual_seed(0)
    env = Corridor(torch.Generator().manual_seed(3))
    net, obs = ActorCritic(), env.observe()
    log = ActivationLog(net.trunk)
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    positions, rewards_seen = [], []
    for update in range(90):
        batch = []
        log.active = True
        with torch.no_grad():
            for _ in range(ROLLOUT):
                positions.append(float(env.pos))
                action = int(torch.distributions.Categorical(logits=net(obs)[0]).sample())
                nxt, reward, done = env.step(action)
                batch.append((obs, action, reward, done))
                rewards_seen.append(reward)
                obs = nxt
            ret = net(obs)[1]
        log.active = False
        returns = []
        for _, _, reward, done in reversed(batch):
            ret = reward + GAMMA * ret * (1 - done)
            returns.insert(0, ret)
        logits, value = net(torch.stack([b[0] for b in batch]))
        logp = torch.distributions.Categorical(logits=logits).log_prob(torch.tensor([b[1] for b in batch]))
        adv = torch.stack([torch.as_tensor(r) for r in returns]) - value
        loss = -(logp * adv.detach()).mean() + 0.5 * adv.pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    hidden = torch.stack(log.rows[:len(positions)])
    print(f"mean reward of the last 200 steps {sum(rewards_seen[-200:]) / 200:.3f}")
    print(f"probe R2 for the position: {probe_r2(hidden, torch.tensor(positions)):.2f}")


if __name__ == "__main__":
    main()
