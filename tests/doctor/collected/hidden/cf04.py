"""Guided backpropagation for a small all-convolutional classifier."""
import torch
import torch.nn as nn

torch.manual_seed(3)


class AllConv(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(),
            nn.Conv2d(12, 12, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(),
            nn.Conv2d(24, 24, 3, stride=2, padding=1), nn.ReLU(),
        )
        self.classifier = nn.Conv2d(24, classes, 1)

    def forward(self, x):
        return self.classifier(self.features(x)).mean((2, 3))


class GuidedBackprop:
    def __init__(self, model):
        self.model = model.eval()
        self.handles = []
        for layer in model.features:
            if isinstance(layer, nn.ReLU):
                self.handles.append(layer.register_full_backward_hook(self.only_positive))

    @staticmethod
    def only_positive(module, grad_input, grad_output):
        # let only positive evidence travel back through the unit
        return (grad_output[0].clamp(min=0),)

    def __call__(self, image, target):
        image = image.clone().requires_grad_(True)
        score = self.model(image)[:, target].sum()
        (grad,) = torch.autograd.grad(score, image)
        return grad

    def close(self):
        for h in self.handles:
            h.remove()


def stem_gradient(model, image, target):
    """Gradient that arrives at the output of the first convolution."""
    box = {}

    def grab(module, args, out):
        out.register_hook(lambda g: box.update(g=g.detach()))

    handle = model.features[0].register_forward_hook(grab)
    model(image)[:, target].sum().backward()
    handle.remove()
    return box["g"]


model = AllConv()
image = torch.randn(1, 3, 24, 24)
target = model(image).argmax(1).item()
plain = stem_gradient(model, image, target)
guided = GuidedBackprop(model)
saliency = guided(image, target)
clean = stem_gradient(model, image, target)
guided.close()

print("target class", target)
print(f"plain  stem gradient: density {(plain != 0).float().mean().item():.3f} negative {(plain < 0).float().mean().item():.3f}")
print(f"guided stem gradient: density {(clean != 0).float().mean().item():.3f} negative {(clean < 0).float().mean().item():.3f}")
print(f"saliency peak {saliency.abs().max().item():.5f} mean {saliency.abs().mean().item():.6f}")
