"""Remove filters that never fire from the first convolution of each residual block."""
import torch
import torch.nn as nn

torch.manual_seed(0)
torch.set_num_threads(1)

WIDTH = 12
DEAD = {0: [1, 4, 7], 1: [0, 5, 9, 11]}


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.relu = nn.ReLU()

    def forward(self, x):
        out = self.relu(self.conv1(x))
        out = self.conv2(out)
        return self.relu(out + x)


class ResNetTiny(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.blocks = nn.ModuleList([ResidualBlock(WIDTH), ResidualBlock(WIDTH)])
        self.fc = nn.Linear(WIDTH, classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean(dim=(2, 3)))


def load_checkpoint(model):
    """Stands in for a trained checkpoint in which some filters have died."""
    with torch.no_grad():
        for index, filters in DEAD.items():
            model.blocks[index].conv1.bias[filters] = -25.0
    return model


@torch.no_grad()
def mean_activation(model, batches):
    activation = {}

    def save_as(name):
        def hook(module, args, output):
            activation[name] = output.detach()

        return hook

    handles = []
    for index, block in enumerate(model.blocks):
        handles.append(block.relu.register_forward_hook(save_as(index)))

    totals = {index: torch.zeros(WIDTH) for index in range(len(model.blocks))}
    for batch in batches:
        model(batch)
        for index, output in activation.items():
            totals[index] += output.mean(dim=(0, 2, 3))
    for handle in handles:
        handle.remove()
    return {index: total / len(batches) for index, total in totals.items()}


@torch.no_grad()
def silence_filters(block, filters):
    block.conv1.weight[filters] = 0
    block.conv1.bias[filters] = 0


def main():
    model = load_checkpoint(ResNetTiny()).eval()
    batches = [torch.randn(8, 3, 12, 12) for _ in range(6)]
    probe = torch.randn(16, 3, 12, 12)
    with torch.no_grad():
        before = model(probe)

    importance = mean_activation(model, batches)
    for index, block in enumerate(model.blocks):
        count = len(DEAD[index])
        weakest = importance[index].argsort()[:count].sort().values.tolist()
        silence_filters(block, weakest)
        print(f"block {index}: removed the {count} least active filters {weakest}")

    with torch.no_grad():
        after = model(probe)
    print(f"largest logit change after pruning: {(after - before).abs().max():.4f}")


if __name__ == "__main__":
    main()
