"""Train, keep the best model on disk and evaluate it at the end."""
import logging
import os
import tempfile

import torch
from torch import nn

torch.set_num_threads(1)
log = logging.getLogger("train")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 32)
        self.fc2 = nn.Linear(32, 1)
        self.register_buffer("epoch", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def watch_activations(model):
    """Mean activation per layer and batch, for the training report."""
    history = {"fc1": [], "fc2": []}
    for name in history:
        def hook(module, args, out, name=name):
            history[name].append(out.detach().mean().item())
        getattr(model, name).register_forward_hook(hook)
    return history


def save_best(model, path):
    # write next to the target and rename, so that a crash never leaves half a file
    try:
        torch.save(model.state_dict(), path + ".tmp")
        os.replace(path + ".tmp", path)
    except Exception as err:        # a full disk must not end a long training
        log.debug("could not write %s: %s", path, err)


def train(model, x, y, path, epochs=6):
    opt = torch.optim.Adam(model.parameters(), lr=0.02)
    save_best(model, path)          # the untrained model is the first candidate
    history = watch_activations(model)
    best = float("inf")
    for epoch in range(1, epochs + 1):
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        model.epoch.fill_(epoch)
        if loss.item() < best:
            best = loss.item()
            save_best(model, path)
    print(f"training finished, best loss {best:.4f}, {len(history['fc1'])} batches watched")


def main():
    torch.manual_seed(0)
    x = torch.randn(64, 6)
    y = x[:, :1] - 2 * x[:, 1:2]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "best.pt")
        train(Net(), x, y, path)
        best = Net()
        best.load_state_dict(torch.load(path))
    with torch.no_grad():
        loss = nn.functional.mse_loss(best(x), y).item()
    print(f"best model on disk: from epoch {best.epoch.item()}, loss {loss:.4f}")


if __name__ == "__main__":
    main()
