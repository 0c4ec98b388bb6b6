"""Checkpoints in which a pruned layer is stored sparsely and old parameter names are accepted."""
import io

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(12)


class MaskedConv(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(c_out, c_in, 3, 3) * 0.2)
        self.register_buffer("mask", torch.ones(c_out, c_in, 3, 3), persistent=False)
        self.register_state_dict_post_hook(self.to_sparse)
        self.register_load_state_dict_pre_hook(self.from_sparse)

    def prune(self, amount):
        limit = self.weight.detach().abs().flatten().kthvalue(int(amount * self.weight.numel())).values
        self.mask = (self.weight.detach().abs() > limit).float()

    @staticmethod
    def to_sparse(module, state_dict, prefix, local_metadata):
        # replace the entry in the dictionary; the parameter itself is not touched
        dense = state_dict.pop(prefix + "weight").detach() * module.mask
        state_dict[prefix + "index"] = dense.flatten().nonzero().flatten()
        state_dict[prefix + "values"] = dense.flatten()[dense.flatten() != 0]

    @staticmethod
    def from_sparse(module, state_dict, prefix, *args):
        if prefix + "values" in state_dict:
            dense = torch.zeros_like(module.weight).flatten()
            dense[state_dict.pop(prefix + "index")] = state_dict.pop(prefix + "values")
            state_dict[prefix + "weight"] = dense.view_as(module.weight)
        elif prefix + "kernel" in state_dict:  # first release
            state_dict[prefix + "weight"] = state_dict.pop(prefix + "kernel")

    def forward(self, x):
        return F.conv2d(x, self.weight * self.mask, padding=1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(MaskedConv(1, 6), nn.ReLU(), MaskedConv(6, 6))
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


model = Net()
for m in model.modules():
    if isinstance(m, MaskedConv):
        m.prune(0.6)
kept = model.features[2].weight.detach().clone()
buffer = io.BytesIO()
torch.save(model.state_dict(), buffer)
buffer.seek(0)

other = Net()
print(other.load_state_dict(torch.load(buffer)))
x = torch.randn(4, 1, 8, 8)
print("stored keys", sorted(torch.load(io.BytesIO(buffer.getvalue())).keys()))
print("same output", torch.allclose(model(x), other(x), atol=1e-6))
print("live parameter unchanged", torch.equal(kept, model.features[2].weight))
legacy = {"features.0.kernel": torch.ones(6, 1, 3, 3), "features.2.kernel": torch.ones(6, 6, 3, 3),
          "fc.weight": torch.zeros(3, 6), "fc.bias": torch.zeros(3)}
print(Net().load_state_dict(legacy))
