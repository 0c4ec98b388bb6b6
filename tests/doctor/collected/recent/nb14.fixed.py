"""Temperature scaling of a classifier that is shipped as a traced module.

A forward hook divides the logits by a temperature.  The temperature is fitted on a
validation set; the expected calibration error is then measured on the shipped module.
"""
import io

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(14)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        return self.head(F.relu(self.conv2(x)).amax((2, 3)))


class Temperature:
    def __init__(self):
        self.value = 1.0

    def __call__(self, module, args, logits):
        return logits / self.value

    @torch.no_grad()
    def fit(self, model, x, y):
        logits = model(x) * self.value
        grid = [0.5 + 0.1 * i for i in range(100)]
        self.value = min(grid, key=lambda t: F.cross_entropy(logits / t, y).item())


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=g)
    x = 0.9 * torch.randn(n, 1, 10, 10, generator=g)
    for i, c in enumerate(y.tolist()):
        r = int(torch.randint(1, 6, (1,), generator=g))
        if c == 0:
            x[i, 0, r:r + 2, :] += 0.9
        elif c == 1:
            x[i, 0, :, r:r + 2] += 0.9
        else:
            x[i, 0, r:r + 4, r:r + 4] += 0.9
    return x, y


def train(model, x, y, steps=150):
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(steps):
        idx = torch.arange(step * 32, step * 32 + 32) % len(x)
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()


@torch.no_grad()
def calibration_error(model, x, y, bins=10):
    confidence, predicted = model(x).softmax(1).max(1)
    right = (predicted == y).float()
    which = (confidence * bins).long().clamp(max=bins - 1)
    error = 0.0
    for b in range(bins):
        inside = which == b
        if inside.any():
            error += inside.float().mean() * (confidence[inside].mean() - right[inside].mean()).abs()
    return float(error)


def main():
    x, y = make_data(128, seed=1)
    xv, yv = make_data(512, seed=2)
    xt, yt = make_data(512, seed=3)
    model = Net()
    train(model, x, y)
    model.eval()

    temperature = Temperature()
    model.register_forward_hook(temperature)
    before = calibration_error(model, xt, yt)
    temperature.fit(model, xv, yv)
    shipped = torch.jit.trace(model, xv[:4])
    print(f"fitted temperature {temperature.value:.1f}")

    buffer = io.BytesIO()
    torch.jit.save(shipped, buffer)
    buffer.seek(0)
    loaded = torch.jit.load(buffer)
    after = calibration_error(loaded, xt, yt)
    print(f"calibration error: uncalibrated {before:.4f}, shipped module {after:.4f}")
    print(f"reduced by {100 * (1 - after / before):.0f} percent")


if __name__ == "__main__":
    main()
