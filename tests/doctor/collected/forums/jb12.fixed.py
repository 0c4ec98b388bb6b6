"""Quantisation-aware fine-tuning: activations are put on a 4-bit grid during training."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(11)
torch.set_num_threads(1)


class ConvNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.act1 = nn.ReLU()
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.act2 = nn.ReLU()
        self.fc = nn.Linear(16 * 9, classes)

    def forward(self, x):
        x = F.max_pool2d(self.act1(self.conv1(x)), 2)
        x = F.max_pool2d(self.act2(self.conv2(x)), 2)
        return self.fc(x.flatten(1))


class ActivationQuantizer:
    def __init__(self, bits=4, momentum=0.1):
        self.levels = 2 ** bits - 1
        self.momentum = momentum
        self.maximum = None

    def __call__(self, module, inputs, output):
        if module.training:
            peak = output.detach().max()
            if self.maximum is None:
                self.maximum = peak
            else:
                self.maximum = torch.lerp(self.maximum, peak, self.momentum)
        scale = self.maximum / self.levels
        quantized = torch.round(torch.clamp(output / scale, 0, self.levels)) * scale
        return output + (quantized - output).detach()


def attach_quantizers(model):
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.register_forward_hook(ActivationQuantizer())


def make_data(n):
    y = torch.randint(0, 3, (n,))
    x = 0.8 * torch.randn(n, 1, 12, 12)
    x[y == 0, :, 3:5, :] += 1.0
    x[y == 1, :, :, 6:8] += 1.0
    x[y == 2, :, 4:9, 4:9] += 0.8
    return x, y


def main():
    model = ConvNet()
    attach_quantizers(model)
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    x, y = make_data(480)
    x_test, y_test = make_data(240)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)

    for epoch in range(5):
        model.train()
        for i in range(0, len(x), 48):
            loss = F.cross_entropy(model(x[i:i + 48]), y[i:i + 48])
            opt.zero_grad()
            loss.backward()
            opt.step()
        model.eval()
        with torch.no_grad():
            acc = (model(x_test).argmax(1) == y_test).float().mean().item()
        print(f"epoch {epoch}: loss {loss.item():.4f}  test accuracy {acc:.3f}")

    for name, p in model.named_parameters():
        if name.endswith("weight"):
            change = (p.detach() - start[name]).norm() / start[name].norm()
            print(f"relative change of {name}: {change.item():.5f}")


if __name__ == "__main__":
    main()
