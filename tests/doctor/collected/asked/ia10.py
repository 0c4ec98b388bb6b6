"""Keep the activations of the forward pass in 8 bits until the backward pass needs them."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(9)
torch.set_num_threads(1)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(32, 96)
        self.fc2 = nn.Linear(96, 96)
        self.fc3 = nn.Linear(96, 5)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)


class ActivationCompressor:
    """Quantizes what autograd saves, parameters excepted (they are in memory anyway)."""

    def __init__(self, model):
        self.parameters = {id(p) for p in model.parameters()}
        self.bytes_kept = 0

    def pack(self, tensor):
        if id(tensor) in self.parameters or not tensor.is_floating_point():
            return tensor
        scale = tensor.abs().max().clamp(min=1e-8) / 127
        codes = torch.round(tensor / scale).to(torch.int8)
        self.bytes_kept += codes.numel()
        return codes, scale

    def unpack(self, packed):
        if isinstance(packed, torch.Tensor):
            return packed
        codes, scale = packed
        return codes.to(scale.dtype) * scale

    def __call__(self):
        return torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)


def main():
    x = torch.randn(256, 32)
    y = (x @ torch.randn(32, 5)).argmax(dim=1)

    model = MLP()
    compressor = ActivationCompressor(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    for epoch in range(5):
        total = 0.0
        for batch in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            with compressor():
                logits = model(x[batch])
            loss = F.cross_entropy(logits, y[batch])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        print(f"epoch {epoch}: loss {total / len(x):.3f}")

    kept = {}
    for size in (32, 64):
        compressor.bytes_kept = 0
        with compressor():
            model(x[:size])
        kept[size] = compressor.bytes_kept
        print(f"8-bit memory for a batch of {size}: {kept[size]} bytes")
    print(f"batch of 64 relative to batch of 32: {kept[64] / kept[32]:.2f}")


if __name__ == "__main__":
    main()
