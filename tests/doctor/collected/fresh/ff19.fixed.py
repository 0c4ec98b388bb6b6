"""Load an old checkpoint into a renamed adapter model; a load hook translates the old names."""
import os
import tempfile
import torch
from torch import nn

torch.manual_seed(20)


class OldAdapter(nn.Module):
    def __init__(self, dim, rank):
        super().__init__()
        self.down = nn.Linear(dim, rank, bias=False)
        self.up = nn.Linear(rank, dim, bias=False)

    def forward(self, x):
        return x + self.up(self.down(x))


class Adapter(nn.Module):
    NAMES = {"down.weight": "lora_A.weight", "up.weight": "lora_B.weight"}

    def __init__(self, dim, rank):
        super().__init__()
        self.lora_A = nn.Linear(dim, rank, bias=False)
        self.lora_B = nn.Linear(rank, dim, bias=False)
        self.register_load_state_dict_pre_hook(self.translate)

    @staticmethod
    def translate(module, state_dict, prefix, *args):
        # checkpoints from before the renaming
        for old, new in Adapter.NAMES.items():
            if prefix + old in state_dict:
                state_dict[prefix + new] = state_dict.pop(prefix + old)

    def forward(self, x):
        return x + self.lora_B(self.lora_A(x))


class Policy(nn.Module):
    def __init__(self, adapter):
        super().__init__()
        self.enc = nn.Linear(6, 12)
        self.adapter = adapter(12, 3)
        self.head = nn.Linear(12, 2)

    def forward(self, x):
        return self.head(self.adapter(torch.relu(self.enc(x))))


old = Policy(OldAdapter)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "policy.pt")
    torch.save(old.state_dict(), path)
    new = Policy(Adapter)
    # strict=False: the optimizer part of old checkpoints may bring further keys
    info = new.load_state_dict(torch.load(path), strict=False)

x = torch.randn(5, 6)
with torch.no_grad():
    gap = (old(x) - new(x)).abs().max().item()
print("keys loaded:", len(new.state_dict()) - len(info.missing_keys), "of", len(new.state_dict()))
print(f"largest difference of the outputs {gap:.6f}")
print("old and new policy agree:", gap < 1e-6)
