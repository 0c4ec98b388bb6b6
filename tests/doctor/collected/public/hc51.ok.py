"""Lightning GAN with two optimizers, manual optimization and a discriminator gradient log."""
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def mlp(n_in, n_hidden, n_out):
    return nn.Sequential(nn.Linear(n_in, n_hidden), nn.LeakyReLU(0.2), nn.Linear(n_hidden, n_out))


class LitGAN(L.LightningModule):
    def __init__(self, latent=4, n_features=2):
        super().__init__()
        self.automatic_optimization = False
        self.latent = latent
        self.generator = mlp(latent, 32, n_features)
        self.discriminator = mlp(n_features, 32, 1)
        self.discriminator_steps = 0

    def forward(self, z):
        return self.generator(z)

    def training_step(self, batch, batch_idx):
        (real,) = batch
        opt_g, opt_d = self.optimizers()
        z = torch.randn(len(real), self.latent)

        self.toggle_optimizer(opt_d)
        real_logits = self.discriminator(real)
        fake_logits = self.discriminator(self(z).detach())
        loss_d = F.softplus(-real_logits).mean() + F.softplus(fake_logits).mean()
        opt_d.zero_grad()
        self.manual_backward(loss_d)
        opt_d.step()
        self.discriminator_steps += 1
        self.untoggle_optimizer(opt_d)

        self.toggle_optimizer(opt_g)
        loss_g = F.softplus(-self.discriminator(self(z))).mean()
        opt_g.zero_grad()
        self.manual_backward(loss_g)
        opt_g.step()
        self.untoggle_optimizer(opt_g)
        self.log_dict({"loss_d": loss_d, "loss_g": loss_g})

    def on_train_epoch_end(self):
        for scheduler in self.lr_schedulers():
            scheduler.step()

    def configure_optimizers(self):
        opt_g = torch.optim.Adam(self.generator.parameters(), lr=2e-3, betas=(0.5, 0.9))
        opt_d = torch.optim.Adam(self.discriminator.parameters(), lr=2e-3, betas=(0.5, 0.9))
        schedulers = [torch.optim.lr_scheduler.ExponentialLR(o, gamma=0.9) for o in (opt_g, opt_d)]
        return [opt_g, opt_d], schedulers


class DiscriminatorGradientLog(L.Callback):
    def on_fit_start(self, trainer, pl_module):
        self.norms = {name: [] for name, _ in pl_module.discriminator.named_parameters()}
        self.handles = []
        for name, param in pl_module.discriminator.named_parameters():
            def record(p, name=name):
                self.norms[name].append(p.grad.norm().item())
            self.handles.append(param.register_post_accumulate_grad_hook(record))

    def on_fit_end(self, trainer, pl_module):
        for handle in self.handles:
            handle.remove()


def main():
    L.seed_everything(9, verbose=False)
    angle = 6.2832 * torch.rand(256)
    real = torch.stack([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(256, 2)
    loader = DataLoader(TensorDataset(real), batch_size=32, shuffle=True)
    model, log = LitGAN(), DiscriminatorGradientLog()
    trainer = L.Trainer(max_epochs=4, accelerator="cpu", logger=False, callbacks=[log],
                        enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False)
    trainer.fit(model, loader)
    metrics = trainer.callback_metrics
    print(f"loss_d {metrics['loss_d'].item():.3f}  loss_g {metrics['loss_g'].item():.3f}")
    print(f"discriminator steps {model.discriminator_steps}")
    for name, norms in log.norms.items():
        print(f"{name:9s} records {len(norms)}  mean norm {sum(norms) / len(norms):.4f}")


if __name__ == "__main__":
    main()
