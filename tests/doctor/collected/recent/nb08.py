"""Train in a worker process, evaluate and inspect in the main process.

The worker saves the whole model (with its input standardisation attached as a forward
pre-hook, so that callers can pass raw pixel values).  The main process loads the file,
measures accuracy on raw images and counts dead units with a probe of its own.
"""
import concurrent.futures
import multiprocessing
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class Standardise:
    def __init__(self, mean, std):
        self.mean, self.std = mean, std

    def __call__(self, module, args):
        return ((args[0] - self.mean) / self.std,)


class PixelNet(nn.Module):
    def __init__(self, mean, std, classes=3):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.fc = nn.Linear(8, classes)
        self.register_forward_pre_hook(Standardise(mean, std))

    def forward(self, x):
        return self.fc(F.relu(self.conv(x)).amax((2, 3)))


def make_data(n, seed):
    """Raw images with pixel values around 120."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=g)
    x = 120.0 + 15.0 * torch.randn(n, 1, 12, 12, generator=g)
    for i, c in enumerate(y.tolist()):
        r = int(torch.randint(1, 7, (1,), generator=g))
        if c == 0:
            x[i, 0, r:r + 2, :] += 60
        elif c == 1:
            x[i, 0, :, r:r + 2] += 60
        else:
            x[i, 0, r:r + 4, r:r + 4] += 60
    return x, y


def train_and_save(path):
    torch.manual_seed(8)
    torch.set_num_threads(1)
    x, y = make_data(256, seed=1)
    model = PixelNet(x.mean().item(), x.std().item())
    opt = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(80):
        idx = torch.arange(step * 64, step * 64 + 64) % len(x)
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    torch.save(model, path)
    return accuracy(model, *make_data(256, seed=2))


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean().item()


def main():
    path = os.path.join(tempfile.mkdtemp(), "pixelnet.pt")
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        reported = pool.submit(train_and_save, path).result()
    print(f"worker: test accuracy {reported:.3f}")

    model = torch.load(path, weights_only=False).eval()
    seen = []

    def count_images(module, args):
        seen.append(len(args[0]))

    model.register_forward_pre_hook(count_images)
    x, y = make_data(256, seed=2)
    acc = accuracy(model, x, y)
    print(f"main: {sum(seen)} images, test accuracy {acc:.3f}")
    print(f"difference between the two processes {abs(acc - reported):.3f}")


if __name__ == "__main__":
    main()
