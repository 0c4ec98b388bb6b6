"""Fine-tune a pretrained backbone with a new head; the backbone should learn ten times slower."""
import torch
import torch.nn as nn

torch.manual_seed(1)
torch.set_num_threads(1)

BACKBONE_FACTOR = 0.1


class Regressor(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Linear(features, hidden), nn.Tanh(),
            nn.Linear(hidden, hidden), nn.Tanh(),
        )
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.head(self.backbone(x)).squeeze(-1)


def slow_down(module, factor):
    """Scale all gradients of a module before they reach the optimizer."""
    for param in module.parameters():
        param.register_hook(lambda grad: grad * factor)


def make_data(n=512, features=10):
    x = torch.randn(n, features)
    weight = torch.randn(features)
    y = torch.sin(x @ weight) + 0.05 * torch.randn(n)
    return x, y


def snapshot(module):
    return torch.cat([p.detach().flatten().clone() for p in module.parameters()])


def main():
    x, y = make_data()
    model = Regressor(x.shape[1], 32)
    slow_down(model.backbone, BACKBONE_FACTOR)

    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.MSELoss()

    backbone_path = head_path = 0.0
    for epoch in range(20):
        order = torch.randperm(len(x))
        epoch_loss = 0.0
        for batch in order.split(64):
            backbone_before = snapshot(model.backbone)
            head_before = snapshot(model.head)

            loss = criterion(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            backbone_path += (snapshot(model.backbone) - backbone_before).abs().mean().item()
            head_path += (snapshot(model.head) - head_before).abs().mean().item()
            epoch_loss += loss.item() * len(batch)
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1:2d}  train mse {epoch_loss / len(x):.4f}")

    ratio = backbone_path / head_path
    print(f"mean step size: backbone / head = {ratio:.2f}")


if __name__ == "__main__":
    main()
