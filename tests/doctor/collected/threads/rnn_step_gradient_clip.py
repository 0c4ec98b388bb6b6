"""Graves-style clamping of the hidden gradient at each time step."""
import torch
from torch import nn

LIMIT, T, H = 0.01, 40, 8


class Regressor(nn.Module):
    def __init__(self, clamp):
        super().__init__()
        self.rnn = nn.RNN(3, H, batch_first=True)
        self.out = nn.Linear(H, 1)
        with torch.no_grad():
            self.rnn.weight_hh_l0.copy_(1.25 * torch.eye(H))
            self.rnn.bias_hh_l0.zero_()
            self.rnn.bias_ih_l0.zero_()
        if clamp:
            self.rnn.register_forward_hook(self.clamp_hidden)

    @staticmethod
    def clamp_hidden(module, args, output):
        seq, h = output
        if seq.requires_grad:
            seq.register_hook(lambda g: g.clamp(-LIMIT, LIMIT))

    def forward(self, x):
        seq, _ = self.rnn(x)
        return self.out(seq[:, -1])


def step_norms(model, x):
    """Gradient with respect to the input at each time step."""
    x = x.clone().requires_grad_()
    loss = (model(x) - 5.0).pow(2).sum()
    loss.backward()
    return loss.item(), x.grad.abs().amax(dim=(0, 2))


x = 1e-6 * torch.randn(4, T, 3, generator=torch.Generator().manual_seed(0))
for clamp in (False, True):
    torch.manual_seed(0)
    model = Regressor(clamp)
    loss, g = step_norms(model, x)
    w = model.rnn.weight_ih_l0
    bound = LIMIT * w.detach().abs().sum(0).max().item()
    print(f"clamp={clamp!s:5} loss {loss:.4f} input gradient at t=39 {g[39]:.5f}, t=20 {g[20]:.4f}, t=0 {g[0]:.3f}"
          f" | bound if every step were clamped {bound:.4f}")
