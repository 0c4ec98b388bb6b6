# TH505
"""Copy the activations of each batch to the host inside the forward hook. Fake tensors stand for those of a GPU."""

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

features = []


def to_host(module, args, output):
    features.append(output.detach().cpu())


with FakeTensorMode():
    model = nn.Sequential(nn.Flatten(), nn.Tanh(), nn.Softmax(-1))
    model[1].register_forward_hook(to_host)  # <- TH505
    for batch in torch.randn(3, 2, 4, device="cuda"):
        model(batch)
result = [(list(one.shape), one.device.type) for one in features]
