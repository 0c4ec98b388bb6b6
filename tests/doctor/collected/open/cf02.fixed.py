"""Which filters of a small VGG produce mostly negative pre-activations?"""
import torch
import torch.nn as nn

torch.manual_seed(1)

CFG = [8, 8, "M", 16, 16, "M"]


def make_layers(cfg):
    layers, c_in = [], 3
    for v in cfg:
        if v == "M":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(c_in, v, 3, padding=1), nn.BatchNorm2d(v), nn.ReLU(inplace=True)]
            c_in = v
    return nn.Sequential(*layers)


class VGG(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.features = make_layers(CFG)
        self.classifier = nn.Linear(16 * 4 * 4, classes)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class PreActivations:
    """Keeps what batch norm hands to the non-linearity."""

    def __init__(self, model):
        self.maps = {}
        self.handles = [
            m.register_forward_hook(self.keep(n))
            for n, m in model.named_modules()
            if isinstance(m, nn.BatchNorm2d)
        ]

    def keep(self, name):
        def hook(module, args, out):
            # values before the ReLU, without the graph
            self.maps[name] = out.detach().clone()

        return hook

    def close(self):
        for h in self.handles:
            h.remove()


def main():
    model = VGG().eval()
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.3)
            m.bias.data.normal_(0, 0.5)
    probe = PreActivations(model)
    images = torch.randn(16, 3, 16, 16)
    with torch.no_grad():
        logits = model(images)
    print("logits", tuple(logits.shape))
    for name, maps in probe.maps.items():
        neg = (maps < 0).float().mean((0, 2, 3))
        dead = (neg > 0.95).sum().item()
        print(f"{name:12s} negative share {neg.mean().item():.3f} max {neg.max().item():.3f} dead filters {dead}")
    probe.close()


if __name__ == "__main__":
    main()
