"""One-stage detector: watch how strong the gradient is that enters and leaves each backbone stage."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(9)
torch.set_num_threads(1)


def stage(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, 2, 1, bias=False), nn.BatchNorm2d(cout), nn.LeakyReLU(0.1),
        nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout), nn.LeakyReLU(0.1),
    )


class TinyYolo(nn.Module):
    """Objectness and box (dx, dy) on an 8x8 grid."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1)
        self.stage1 = stage(16, 16)
        self.stage2 = stage(16, 32)
        self.stage3 = stage(32, 32)
        self.head = nn.Conv2d(32, 3, 1)

    def forward(self, x):
        return self.head(self.stage3(self.stage2(self.stage1(self.stem(x)))))


class GradientFlow:
    def __init__(self, model, names):
        self.names = names
        self.entering = {n: [] for n in names}
        self.leaving = {n: [] for n in names}
        self.handles = []
        for name in names:
            self.handles.append(getattr(model, name).register_backward_hook(self.recorder(name)))

    def recorder(self, name):
        def hook(module, grad_input, grad_output):
            self.entering[name].append(grad_output[0].norm().item())
            self.leaving[name].append(grad_input[0].norm().item())
        return hook

    def mean(self, table, name):
        return sum(table[name]) / len(table[name])

    def report(self):
        for name in self.names:
            print(f"{name}: gradient at its output {self.mean(self.entering, name):.4f}, "
                  f"at its input {self.mean(self.leaving, name):.4f}")
        gap = 0.0
        for first, second in zip(self.names, self.names[1:]):
            a, b = self.mean(self.entering, first), self.mean(self.leaving, second)
            gap = max(gap, abs(a - b) / a)
        return gap

    def remove(self):
        for handle in self.handles:
            handle.remove()


def sample(n):
    images = 0.3 * torch.randn(n, 3, 64, 64)
    target = torch.zeros(n, 3, 8, 8)
    for i in range(n):
        cy, cx = torch.randint(8, 56, (2,)).tolist()
        images[i, :, cy - 6:cy + 6, cx - 6:cx + 6] += 1.0
        target[i, 0, cy // 8, cx // 8] = 1.0
        target[i, 1, cy // 8, cx // 8] = cy % 8 / 8
        target[i, 2, cy // 8, cx // 8] = cx % 8 / 8
    return images, target


def detection_loss(output, target):
    objectness = F.binary_cross_entropy_with_logits(output[:, 0], target[:, 0])
    mask = target[:, :1]
    box = (mask * (output[:, 1:] - target[:, 1:]).pow(2)).sum() / mask.sum()
    return objectness + box


def main():
    model = TinyYolo()
    flow = GradientFlow(model, ["stage1", "stage2", "stage3"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(15):
        images, target = sample(4)
        loss = detection_loss(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss after {step + 1} steps: {loss.item():.3f}")

    gap = flow.report()
    flow.remove()
    print(f"mismatch between the input of a stage and the output of the one before: {100 * gap:.1f} %")


if __name__ == "__main__":
    main()
