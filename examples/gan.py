"""Train a GAN in the order of pix2pix: the discriminator is frozen while the generator trains.

python examples/gan.py
"""

import torch
from torch import nn

import tenterhook as th


class Gan(nn.Module):
    """A generator and a discriminator. The training loop calls each of them, but never the whole model."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        self.discriminator = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))


torch.manual_seed(0)
model = Gan()
generator, discriminator = model.generator, model.discriminator
optimizers = {
    "generator": torch.optim.Adam(generator.parameters(), lr=1e-3),
    "discriminator": torch.optim.Adam(discriminator.parameters(), lr=1e-3),
}
plan = [
    th.Hook("clip", on="discriminator.**", at="grad_final", do=th.clip_norm(0.05, over="hook")),
    th.Hook("norms", on="**.weight", at="grad_accumulated", do=th.stats()),
]
rig = th.attach(model, plan, optimizer=optimizers)
bce = nn.functional.binary_cross_entropy_with_logits

for _ in range(50):
    real, fake = torch.randn(32, 2) * 0.1 + 1, generator(torch.randn(32, 4))

    discriminator.requires_grad_(True)
    optimizers["discriminator"].zero_grad()
    judged_fake, judged_real = discriminator(fake.detach()), discriminator(real)
    loss = bce(judged_fake, torch.zeros(32, 1)) + bce(judged_real, torch.ones(32, 1))
    loss.backward()
    optimizers["discriminator"].step()
    total = torch.stack([p.grad.norm() for p in discriminator.parameters()]).norm()
    assert total <= 0.05 + 1e-6, "the discriminator's gradient was not clipped"

    discriminator.requires_grad_(False)
    optimizers["generator"].zero_grad()
    bce(discriminator(fake), torch.ones(32, 1)).backward()
    optimizers["generator"].step()

print(rig.ledger["clip"])
print({target: round(numbers["norm"], 3) for target, numbers in rig.values("norms").items()})
assert not th.check(rig) and all(site.fired == 50 for site in rig.ledger["clip"].values())
