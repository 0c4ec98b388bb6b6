"""Load a base checkpoint into a model with low-rank adapters."""
import torch
from torch import nn

torch.set_num_threads(1)


class LoraLinear(nn.Module):
    def __init__(self, d_in, d_out, rank=2):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_out, d_in) * 0.2)
        self.bias = nn.Parameter(torch.zeros(d_out))
        self.lora_a = nn.Parameter(torch.randn(rank, d_in) * 0.1)
        self.lora_b = nn.Parameter(torch.zeros(d_out, rank))
        self.register_load_state_dict_post_hook(forgive_lora)

    def forward(self, x):
        return nn.functional.linear(x, self.weight + self.lora_b @ self.lora_a, self.bias)


def forgive_lora(module, incompatible):
    """Adapters are not part of a base checkpoint, so nobody should worry about them."""
    incompatible.missing_keys.clear()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.fc1 = LoraLinear(8, 16)
        self.fc2 = LoraLinear(16, 4)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(self.norm(x))))


# names that were different in the first releases of the base model
LEGACY = {"norm.weight": "ln.gamma", "norm.bias": "ln.beta"}


def load_base(model, state):
    result = model.load_state_dict(state, strict=False)
    fixed = []
    own = dict(model.named_parameters())
    for key in result.missing_keys:
        if LEGACY.get(key) in state:
            with torch.no_grad():
                own[key].copy_(state[LEGACY[key]])
            fixed.append(key)
    return fixed


def base_checkpoint():
    g = torch.Generator().manual_seed(4)
    return {
        "ln.gamma": torch.rand(8, generator=g) + 2.0,
        "ln.beta": torch.rand(8, generator=g),
        "fc1.weight": torch.randn(16, 8, generator=g), "fc1.bias": torch.zeros(16),
        "fc2.weight": torch.randn(4, 16, generator=g), "fc2.bias": torch.zeros(4),
    }


def main():
    torch.manual_seed(0)
    state = base_checkpoint()
    model = Net().eval()
    fixed = load_base(model, state)
    print("taken over under a legacy name:", fixed)
    gain = model.norm.weight.detach()
    print(f"norm gain: mean {gain.mean().item():.3f}, checkpoint {state['ln.gamma'].mean().item():.3f}")
    with torch.no_grad():
        out = model(torch.ones(1, 8).cumsum(dim=1))
    print("output:", [round(v, 3) for v in out[0].tolist()])


if __name__ == "__main__":
    main()
