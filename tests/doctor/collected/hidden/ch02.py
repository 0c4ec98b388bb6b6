"""Pre- and post-activation statistics of a VGG with in-place ReLUs."""
import torch
import torch.nn as nn

torch.manual_seed(1)


def stage(c_in, c_out):
    return [nn.Conv2d(c_in, c_out, 3, padding=1), nn.BatchNorm2d(c_out), nn.ReLU(inplace=True), nn.MaxPool2d(2)]


class VGG(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(*stage(3, 8), *stage(8, 16))
        self.classifier = nn.Linear(16 * 16, 5)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class Probe:
    def __init__(self, model):
        self.pre, self.post, self.handles = {}, {}, []
        for name, m in model.features.named_children():
            if isinstance(m, nn.BatchNorm2d):
                self.handles.append(m.register_forward_hook(self.before(name)))
            elif isinstance(m, nn.ReLU):
                self.handles.append(m.register_forward_hook(self.after(name)))

    def before(self, name):
        def hook(module, args, out):
            # the next layer works in place, so keep a copy
            self.pre[name] = out.detach().clone()

        return hook

    def after(self, name):
        def hook(module, args, out):
            # only max pooling follows, nothing writes into this tensor any more
            self.post[name] = out.detach()

        return hook

    def close(self):
        while self.handles:
            self.handles.pop().remove()


model = VGG().eval()
for m in model.modules():
    if isinstance(m, nn.BatchNorm2d):
        m.bias.data.normal_(0, 0.5)
probe = Probe(model)
with torch.no_grad():
    model(torch.randn(8, 3, 16, 16))
probe.close()

for (a, pre), (b, post) in zip(probe.pre.items(), probe.post.items()):
    neg = (pre < 0).float().mean().item()
    zero = (post == 0).float().mean().item()
    print(f"bn {a}: negative {neg:.3f}   relu {b}: zero {zero:.3f}")
    assert torch.equal(pre.clamp(min=0), post)
before = {k: v.clone() for k, v in probe.pre.items()}
with torch.no_grad():
    model(torch.randn(8, 3, 16, 16))  # the probe is closed: its values stay
print("unchanged after close:", all(torch.equal(before[k], probe.pre[k]) for k in before))
