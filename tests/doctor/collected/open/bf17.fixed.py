"""GAN with R1 regularisation; the feedback that reaches the critic's last layer is recorded to tune its step size."""
import torch
from torch import nn

torch.manual_seed(12)
GAMMA, BATCH, ITERATIONS = 0.5, 32, 40


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(2, 32), nn.Softplus(), nn.Linear(32, 32), nn.Softplus())
        self.last = nn.Linear(32, 1)

    def forward(self, x):
        return self.last(self.features(x)).squeeze(1)


class FeedbackMeter:
    """Norm of the gradient of the critic loss at the critic's last layer, one entry per scored batch."""

    def __init__(self, layer):
        self.values = []
        self.on = False
        layer.register_full_backward_hook(self.hook)

    def hook(self, module, grad_input, grad_output):
        if self.on:
            self.values.append(grad_output[0].norm().item())


critic = Critic()
generator = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 2))
opt_c = torch.optim.Adam(critic.parameters(), lr=2e-3)
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
meter = FeedbackMeter(critic.last)
softplus = nn.functional.softplus


def r1_penalty(real, score):
    meter.on = False                    # this is not the critic loss
    (grad,) = torch.autograd.grad(score.sum(), real, create_graph=True)
    meter.on = True
    return 0.5 * GAMMA * grad.pow(2).sum(dim=1).mean()


def critic_step(real, fake):
    real = real.requires_grad_(True)
    score_real, score_fake = critic(real), critic(fake)
    adversarial = softplus(-score_real).mean() + softplus(score_fake).mean()
    loss = adversarial + r1_penalty(real, score_real)
    opt_c.zero_grad()
    loss.backward()
    opt_c.step()
    return loss.item()


for it in range(ITERATIONS):
    real = torch.randn(BATCH, 2) * torch.tensor([1.0, 0.3]) + 1.0
    fake = generator(torch.randn(BATCH, 3)).detach()
    meter.on = True
    loss_c = critic_step(real, fake)
    meter.on = False
    loss_g = softplus(-critic(generator(torch.randn(BATCH, 3)))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    if (it + 1) % 20 == 0:
        print(f"iteration {it + 1}: critic {loss_c:.3f}  generator {loss_g.item():.3f}")

mean = sum(meter.values) / len(meter.values)
print(f"entries per iteration: {len(meter.values) / ITERATIONS:.1f} (real batch and fake batch)")
print(f"mean feedback {mean:.3f} -> suggested critic step size {1e-4 / mean:.6f}")
