"""Two-task regression with a shared encoder; the gradient that reaches the
encoder output is logged so that the task weights can be tuned."""
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(2)


class Encoder(nn.Module):
    def __init__(self, in_features=20, width=48):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(in_features, width), nn.ReLU(), nn.Linear(width, width), nn.Tanh())

    def forward(self, x):
        return self.net(x)


class TwoTaskModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.depth_head = nn.Linear(48, 1)
        self.normal_head = nn.Linear(48, 3)


class GradientLog:
    def __init__(self):
        self.norms = []

    def attach(self, module):
        return module.register_forward_hook(self.watch_output)

    def watch_output(self, module, inputs, output):
        output.register_hook(self.record)

    def record(self, grad):
        self.norms.append(grad.norm().item())

    def mean(self):
        return sum(self.norms) / max(len(self.norms), 1)


class Trainer:
    def __init__(self, model, weights=(1.0, 0.5), lr=3e-3):
        self.model = model
        self.weights = weights
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.log = GradientLog()
        self.handle = self.log.attach(model.encoder)

    def losses(self, x, depth, normal):
        z = self.model.encoder(x)
        depth_loss = nn.functional.mse_loss(self.model.depth_head(z), depth)
        cosine = nn.functional.cosine_similarity(self.model.normal_head(z), normal, dim=1)
        return depth_loss, (1 - cosine).mean()

    def step(self, batch):
        self.optimizer.zero_grad()
        depth_loss, normal_loss = self.losses(*batch)
        total = self.weights[0] * depth_loss + self.weights[1] * normal_loss
        total.backward()
        self.optimizer.step()
        return depth_loss.item(), normal_loss.item()

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            sums = [0.0, 0.0]
            for batch in loader:
                for i, value in enumerate(self.step(batch)):
                    sums[i] += value / len(loader)
            print(f"epoch {epoch + 1}: depth {sums[0]:.3f} normals {sums[1]:.3f}")
        self.handle.remove()


def make_loader(n=320, batch_size=64):
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(n, 20, generator=generator)
    depth = torch.sin(x[:, :4]).sum(dim=1, keepdim=True)
    normal = nn.functional.normalize(x[:, 4:7] + 0.3 * x[:, 7:10].abs(), dim=1)
    return list(zip(x.split(batch_size), depth.split(batch_size), normal.split(batch_size)))


def main():
    trainer = Trainer(TwoTaskModel())
    loader = make_loader()
    trainer.fit(loader, epochs=5)
    log = trainer.log
    print(f"gradient at the encoder output: mean norm {log.mean():.5f} over {len(log.norms)} steps")


if __name__ == "__main__":
    main()
