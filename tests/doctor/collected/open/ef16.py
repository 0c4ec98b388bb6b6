"""Linear probes on the hidden layers of a trained network: where is the sign of feature 0 readable?"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Linear(10, width), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.layer3 = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.layer3(self.layer2(self.layer1(x))))


class ActivationStore:
    def __init__(self, model, names):
        self.chunks = {name: [] for name in names}
        self.handles = [
            model.get_submodule(name).register_forward_hook(self.hook(name)) for name in names
        ]

    def hook(self, name):
        def fn(module, args, output):
            # detached, so nothing of the big model stays alive
            self.chunks[name].append(output.detach())
        return fn

    def features(self, name):
        return torch.cat(self.chunks[name])

    def close(self):
        for h in self.handles:
            h.remove()


@torch.inference_mode()
def collect(model, x, names):
    store = ActivationStore(model, names)
    for batch in x.split(64):
        model(batch)
    features = {name: store.features(name) for name in names}
    store.close()
    return features


def train_probe(feats, target, steps=80):
    probe = nn.Linear(feats.shape[1], 2)
    opt = torch.optim.Adam(probe.parameters(), lr=0.05)
    for _ in range(steps):
        loss = F.cross_entropy(probe(feats), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return (probe(feats).argmax(-1) == target).float().mean().item()


def main():
    torch.manual_seed(0)
    x = torch.randn(512, 10)
    y = (x[:, 1] * x[:, 2] > 0).long()
    concept = (x[:, 0] > 0).long()
    model = Net()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(100):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"model loss {loss.item():.4f}")
    feats = collect(model, x, ["layer1", "layer2", "layer3"])
    for name, f in feats.items():
        print(f"{name}: {tuple(f.shape)} features, probe accuracy {train_probe(f, concept):.3f}")


if __name__ == "__main__":
    main()
