"""Per-sample gradients twice: with torch.func and with hooks, compared with each other."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

torch.manual_seed(11)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, stride=2)
        self.fc1 = nn.Linear(4 * 9, 10)
        self.fc2 = nn.Linear(10, 3)

    def forward(self, x):
        x = torch.tanh(self.conv(x)).flatten(1)
        return self.fc2(torch.tanh(self.fc1(x)))


class LinearGradSample:
    """Every linear layer is called once per forward pass, so one slot per layer is enough."""

    def __init__(self, model):
        self.inputs, self.grads, self.handles = {}, {}, []
        for name, m in model.named_modules():
            if isinstance(m, nn.Linear):
                self.handles.append(m.register_forward_pre_hook(self.save(name)))
                self.handles.append(m.register_full_backward_hook(self.combine(name)))

    def save(self, name):
        def hook(module, args):
            self.inputs[name] = args[0].detach()

        return hook

    def combine(self, name):
        def hook(module, grad_input, grad_output):
            # sum reduction: grad_output[i] belongs to sample i alone
            self.grads[name + ".weight"] = torch.einsum("ni,nj->nij", grad_output[0], self.inputs.pop(name))

        return hook

    def close(self):
        for h in self.handles:
            h.remove()


model = Net()
x, y = torch.randn(6, 1, 8, 8), torch.randint(0, 3, (6,))
hooks = LinearGradSample(model)
F.cross_entropy(model(x), y, reduction="sum").backward()
hooks.close()

# a hook that only counts: vmap runs the Python code once for all samples
runs = []
counter = model.conv.register_forward_hook(lambda m, a, o: runs.append(tuple(o.shape)))
params = {k: v.detach() for k, v in model.named_parameters()}


def loss_one(p, xi, yi):
    return F.cross_entropy(functional_call(model, p, (xi[None],)), yi[None])


func_grads = vmap(grad(loss_one), in_dims=(None, 0, 0))(params, x, y)
counter.remove()

for name, g in hooks.grads.items():
    diff = (g - func_grads[name]).abs().max().item()
    norms = g.flatten(1).norm(dim=1)
    print(f"{name}: difference below 1e-5 {diff < 1e-5}, norms", [round(v, 3) for v in norms.tolist()])
print("python runs of the forward under vmap:", len(runs), "seen shape", runs[0])
assert len(runs) == 1 and set(hooks.grads) == {"fc1.weight", "fc2.weight"}
