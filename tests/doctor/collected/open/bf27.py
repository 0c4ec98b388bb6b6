"""Domain-adversarial training: the encoder should classify digits-like data and hide which sensor it came from."""
import torch
from torch import nn

torch.manual_seed(35)


class DANN(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 32), nn.ReLU())
        self.label = nn.Linear(32, 3)
        self.domain = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2))
        self.alpha = 0.0

    def forward(self, x):
        features = self.encoder(x)
        if features.requires_grad:
            # gradient reversal: the encoder climbs the domain loss
            features.register_hook(lambda g: -self.alpha * g)
        return self.label(features), self.domain(features)


def sensors(n):
    """Two sensors, same classes, shifted readings."""
    x = torch.randn(2 * n, 12)
    y = x[:, :3].argmax(dim=1)
    d = torch.arange(2 * n) % 2
    x = x + 1.5 * d.unsqueeze(1) * torch.eye(12)[11]
    return x, y, d


def evaluate(model, x, y, d):
    model.eval()
    with torch.no_grad():
        label, domain = model(x)
    model.train()
    return ((label.argmax(1) == y).float().mean().item(), (domain.argmax(1) == d).float().mean().item())


x, y, d = sensors(400)
x_test, y_test, d_test = sensors(200)
model = DANN()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
criterion = nn.CrossEntropyLoss()
EPOCHS = 12

for epoch in range(EPOCHS):
    model.alpha = 0.5 * (epoch + 1) / EPOCHS
    order = torch.randperm(len(x))
    for i in range(0, len(order), 80):
        idx = order[i:i + 80]
        label, domain = model(x[idx])
        loss_y, loss_d = criterion(label, y[idx]), criterion(domain, d[idx])
        optimizer.zero_grad()
        (loss_y + loss_d).backward()
        optimizer.step()
    if epoch % 4 == 3:
        acc, dom = evaluate(model, x_test, y_test, d_test)
        print(f"epoch {epoch + 1}: label loss {loss_y.item():.3f} accuracy {acc:.3f}, domain accuracy {dom:.3f}")

acc, dom = evaluate(model, x_test, y_test, d_test)
print("label accuracy:", "good" if acc > 0.85 else "poor", f"({acc:.2f})")
