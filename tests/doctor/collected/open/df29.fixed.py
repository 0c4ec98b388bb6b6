"""What do 5-bit activations cost? Compare a rounded run with the float model."""
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.head = nn.Linear(48, 3)

    def forward(self, x):
        return self.head(self.features(x))


def round_linear(module, args, out):
    """Simulated 5-bit activations behind every linear layer."""
    if isinstance(module, nn.Linear):
        step = out.abs().max() / 15
        return (out / step).round() * step


def simulate_low_bits():
    # one call instead of a walk over all layers
    return register_module_forward_hook(round_linear)


def train(model, x, y, steps=30):
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        opt.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        opt.step()


@torch.no_grad()
def evaluate(model, x, y):
    logits = model(x)
    return nn.functional.cross_entropy(logits, y).item(), logits


def main():
    torch.manual_seed(0)
    x = torch.randn(150, 8)
    y = x[:, :3].argmax(dim=1)
    trained = Net()
    train(trained, x, y)
    weights = trained.state_dict()

    low = Net()
    low.load_state_dict(weights)
    with simulate_low_bits():
        low_loss, low_logits = evaluate(low.eval(), x, y)

    full = Net()                       # a fresh object, so nothing of the simulation is left
    full.load_state_dict(weights)
    full_loss, full_logits = evaluate(full.eval(), x, y)

    print(f"float loss {full_loss:.4f}, 5-bit loss {low_loss:.4f}")
    gap = (low_logits - full_logits).abs().max().item()
    print(f"largest change of a logit {gap:.4f}")
    print("verdict:", "5 bits are free" if gap < 1e-4 else "5 bits cost something")


if __name__ == "__main__":
    main()
