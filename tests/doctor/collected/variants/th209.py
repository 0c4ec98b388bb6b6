"""Serve a compiled policy network; an ablation study later switches off hidden units."""
import contextlib
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class ServerConfig:
    obs_dim: int = 6
    hidden: int = 16
    backend: str = "eager"


class Policy(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        d = cfg.hidden
        self.body = nn.ModuleDict({"inp": nn.Linear(cfg.obs_dim, d), "mid": nn.Linear(d, d)})
        self.logits = nn.Linear(cfg.hidden, 4)

    def forward(self, obs):
        h = torch.tanh(self.body["inp"](obs))
        return self.logits(torch.tanh(self.body["mid"](h)))


class PolicyServer:
    def __init__(self, cfg):
        self.policy = Policy(cfg).eval()
        self._run = torch.compile(self.policy, backend=cfg.backend)
        self.act(torch.zeros(32, cfg.obs_dim))  # warm up

    @torch.no_grad()
    def act(self, obs):
        return self._run(obs).softmax(-1)


class UnitAblation:
    def __init__(self, unit):
        self.unit = unit

    def __call__(self, module, args, output):
        output = output.clone()
        output[:, self.unit] = 0.0
        return output


@contextlib.contextmanager
def ablated(policy, unit):
    handle = policy.body["mid"].register_forward_hook(UnitAblation(unit))
    try:
        yield
    finally:
        handle.remove()


def main():
    torch.manual_seed(0)
    server = PolicyServer(ServerConfig())
    obs = torch.randn(32, 6)
    baseline = server.act(obs)
    for unit in range(4):
        with ablated(server.policy, unit):
            effect = (server.act(obs) - baseline).abs().max().item()
        print(f"unit {unit}: largest change of an action probability {effect:.6f}")


if __name__ == "__main__":
    main()
