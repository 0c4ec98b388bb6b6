"""Per-sample gradients with torch.func for a model with a feature-centring hook."""
import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.enc(x))


def centre(module, args, out):
    """Self-supervised trick: remove the mean feature of the batch."""
    return out - out.mean(dim=0, keepdim=True)


model = Net()
model.enc.register_forward_hook(centre)
params = {k: v.detach() for k, v in model.named_parameters()}


def sample_loss(params, x, y):
    logits = functional_call(model, params, (x.unsqueeze(0),))
    return nn.functional.cross_entropy(logits, y.unsqueeze(0))


x = torch.randn(32, 10)
y = torch.randint(0, 3, (32,))
per_sample, losses = vmap(grad_and_value(sample_loss), in_dims=(None, 0, 0))(params, x, y)

loss = nn.functional.cross_entropy(model(x), y)
loss.backward()
print(f"batch loss {loss.item():.5f}, mean of per-sample losses {losses.mean().item():.5f}")
print("distinct per-sample losses:", len(set(round(v, 5) for v in losses.tolist())))
for n, p in model.named_parameters():
    mean_grad = per_sample[n].mean(0)
    norms = per_sample[n].flatten(1).norm(dim=1)
    print(f"{n:14s} batch grad {p.grad.norm():.5f}  mean of per-sample grads {mean_grad.norm():.5f}"
          f"  per-sample norms {norms.min():.4f}..{norms.max():.4f}")
