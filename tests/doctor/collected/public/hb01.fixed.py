"""Find a small logo in larger pictures by comparing VGG feature maps."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

VGG_CFG = [16, 16, "M", 32, 32, "M"]


def make_layers(cfg, in_channels=3):
    layers = []
    for v in cfg:
        if v == "M":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(in_channels, v, 3, padding=1), nn.ReLU(inplace=True)]
            in_channels = v
    return nn.Sequential(*layers)


class VGG(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = make_layers(VGG_CFG)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight)
                nn.init.zeros_(m.bias)

    def forward(self, x):
        return self.features(x)


class LayerOutputs:
    """Keeps the output of some layers of `net.features` for the latest image."""

    def __init__(self, net, layer_ids):
        self.maps = {}
        self.handles = []
        for i in layer_ids:
            self.handles.append(net.features[i].register_forward_hook(self.keeper(i)))

    def keeper(self, layer_id):
        def hook(module, inputs, output):
            self.maps[layer_id] = output.detach().clone()
        return hook

    def remove(self):
        for handle in self.handles:
            handle.remove()


def describe(net, image, layer_ids):
    outputs = LayerOutputs(net, layer_ids)
    with torch.no_grad():
        net(image)
    outputs.remove()
    return outputs.maps


def correlate(feature_map, template):
    kernel = template[:, :, 1:-1, 1:-1]
    kernel = kernel / kernel.norm()
    energy = F.conv2d(feature_map.pow(2), torch.ones_like(kernel)).sqrt()
    return F.conv2d(feature_map, kernel) / energy.clamp(min=1e-6)


def make_scene(logo, top, left, size=48):
    scene = 0.3 * torch.randn(1, 3, size, size)
    h, w = logo.shape[-2:]
    scene[:, :, top:top + h, left:left + w] = logo
    return scene


def main():
    layer_ids = [5, 7]
    net = VGG().eval()
    logo = torch.randn(1, 3, 16, 16)
    template = describe(net, logo, layer_ids)

    for layer in layer_ids:
        share = (template[layer] < 0).float().mean().item()
        print(f"layer {layer}: share of negative responses in the template {share:.3f}")

    hits = 0
    places = [(4, 8), (12, 20), (20, 2), (30, 28), (16, 16)]
    for top, left in places:
        scene = make_scene(logo, top, left)
        maps = describe(net, scene, layer_ids)
        score = correlate(maps[5], template[5])[0, 0]
        best = score.argmax().item()
        found = (2 * (best // score.shape[1] - 1), 2 * (best % score.shape[1] - 1))
        hits += int(found == (top, left))
        print(f"logo at {(top, left)}: found at {found}, contrast {score.max() - score.mean():.3f}")
    print(f"{hits} of {len(places)} logos found")


if __name__ == "__main__":
    main()
