"""Load a checkpoint of version 1 of a detector; its backbone used other names for the layers."""
import torch
import torch.nn as nn

torch.manual_seed(17)

RENAMED = {"conv_a": "stem", "conv_b": "body"}     # v1 name -> v2 name


class Backbone(nn.Module):
    """Version 2; checkpoints of version 1 are converted when they are loaded."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.body = nn.Conv2d(4, 8, 3, padding=1)
        self.register_load_state_dict_pre_hook(self._upgrade)

    @staticmethod
    def _upgrade(module, state_dict, prefix, local_metadata, strict, missing, unexpected, errors):
        for key in list(state_dict.keys()):
            if not key.startswith(prefix):
                continue
            layer, _, rest = key[len(prefix):].partition(".")
            if layer in RENAMED:
                state_dict[f"{prefix}{RENAMED[layer]}.{rest}"] = state_dict.pop(key)

    def forward(self, x):
        return torch.relu(self.body(torch.relu(self.stem(x)))).mean((2, 3))


class Detector(nn.Module):
    def __init__(self, n_out=5):
        super().__init__()
        self.backbone = Backbone()
        self.box_head = nn.Linear(8, n_out)

    def forward(self, x):
        return self.box_head(self.backbone(x))


def v1_checkpoint():
    """A stored state dict of version 1 (and the outputs it produced on a test image)."""
    net = Detector()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1 * torch.randn_like(p))
    image = torch.randn(1, 1, 8, 8)
    reference = net(image).detach()
    old_names = {v: k for k, v in RENAMED.items()}
    state = {}
    for key, value in net.state_dict().items():
        parts = key.split(".")
        state[".".join(old_names.get(p, p) for p in parts)] = value.clone()
    # v1 also had an auxiliary head that is gone now
    state["aux_head.weight"] = torch.zeros(2, 8)
    return state, image, reference


state, image, reference = v1_checkpoint()
print("stored keys:", sorted(state))

# the backbone alone, as in the unit test of the conversion
alone = Backbone()
alone.load_state_dict({k[len("backbone."):]: v for k, v in state.items() if k.startswith("backbone.")})
print("backbone alone loaded")

model = Detector()
model.load_state_dict(state, strict=False)        # strict=False because of aux_head
with torch.no_grad():
    diff = (model(image) - reference).abs().max().item()
print(f"largest difference to the stored outputs: {diff:.5f}")
print("stem restored:", torch.equal(model.backbone.stem.weight, alone.stem.weight))
