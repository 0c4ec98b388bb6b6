"""Training with frequent, coarsely quantised checkpoints (8 levels per unit)."""
import io

import torch
from torch import nn

torch.set_num_threads(1)
LEVELS = 8.0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(5, 24)
        self.fc2 = nn.Linear(24, 1)
        self.register_state_dict_post_hook(quantise)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


def quantise(module, state_dict, prefix, local_metadata):
    """Checkpoints are only for inspection, a coarse grid is enough for them."""
    for key, value in state_dict.items():
        if value.is_floating_point():
            value.mul_(LEVELS).round_().div_(LEVELS)


def checkpoint_size(model):
    buf = io.BytesIO()
    torch.save(model.state_dict(), buf)
    return buf.getbuffer().nbytes


def train(save_every=None, steps=60):
    torch.manual_seed(0)
    model = Net()
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    x = torch.randn(64, 5)
    y = torch.sin(x.sum(dim=1, keepdim=True))
    saves = 0
    for step in range(steps):
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        if save_every and step % save_every == 0:
            checkpoint_size(model)
            saves += 1
    with torch.no_grad():
        final = nn.functional.mse_loss(model(x), y).item()
    return model, final, saves


def main():
    _, plain, _ = train()
    model, with_saves, saves = train(save_every=5)
    print(f"final loss without checkpoints {plain:.4f}")
    print(f"final loss with {saves} checkpoints {with_saves:.4f}")
    print("same training:", abs(plain - with_saves) < 1e-6)
    print(f"a checkpoint takes about {checkpoint_size(model) // 1000} kB")


if __name__ == "__main__":
    main()
