"""Sparse-activation training: an L1 penalty on the outputs of all hidden layers."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(11)
torch.set_num_threads(1)


class SparseNet(nn.Module):
    def __init__(self, features=20, hidden=48, classes=4):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(features, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
        )
        self.classifier = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.classifier(self.encoder(x))


class Trainer:
    def __init__(self, model, l1_activation_penalty, lr=3e-3):
        self.model = model
        self.penalty = l1_activation_penalty
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.outputs = []
        self.handles = []
        if self.penalty > 0:
            for module in model.modules():
                if isinstance(module, nn.ReLU):
                    self.handles.append(module.register_forward_hook(self.output_hook))

    def output_hook(self, module, args, output):
        self.outputs.append(output)

    def training_step(self, x, y):
        self.outputs.clear()
        loss = F.cross_entropy(self.model(x), y)
        l1 = sum((output.abs().mean() for output in self.outputs), torch.zeros(()))
        total = loss + self.penalty * l1
        self.optimizer.zero_grad()
        total.backward()
        self.optimizer.step()
        return loss.item(), l1.item()

    def fit(self, x, y, epochs, batch_size=64):
        for epoch in range(epochs):
            losses, penalties = [], []
            for batch in torch.randperm(len(x)).split(batch_size):
                loss, l1 = self.training_step(x[batch], y[batch])
                losses.append(loss)
                penalties.append(l1)
            if epoch % 5 == 4:
                print(f"epoch {epoch + 1:2d}: cross-entropy {sum(losses) / len(losses):.4f}  "
                      f"activation l1 {sum(penalties) / len(penalties):.4f}")
        for handle in self.handles:
            handle.remove()
        self.outputs.clear()


def make_data(n=512, features=20, classes=4):
    centers = 1.5 * torch.randn(classes, features)
    labels = torch.randint(0, classes, (n,))
    return centers[labels] + torch.randn(n, features), labels


@torch.no_grad()
def active_fraction(model, x):
    hidden = model.encoder(x)
    return (hidden > 1e-3).float().mean().item()


def main():
    x, y = make_data()
    model = SparseNet()
    print(f"active units before training: {active_fraction(model, x):.2f}")
    trainer = Trainer(model, l1_activation_penalty=0.5)
    trainer.fit(x, y, epochs=20)
    print(f"active units after training: {active_fraction(model, x):.2f}")


if __name__ == "__main__":
    main()
