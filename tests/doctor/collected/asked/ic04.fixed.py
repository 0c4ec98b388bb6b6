"""Per-sample gradients for a siamese text encoder, clipped per sample before the update."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(5)
torch.set_num_threads(1)

VOCAB, LENGTH, BATCH = 60, 7, 16


class Encoder(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.fc1 = nn.Linear(dim, dim)
        self.fc2 = nn.Linear(dim, dim)

    def forward(self, tokens):
        hidden = self.embed(tokens).mean(dim=1)
        return self.fc2(torch.tanh(self.fc1(hidden)))


class PerSampleGrads:
    def __init__(self, layers):
        self.layers = layers
        self.activations = {layer: [] for layer in layers}
        self.handles = []
        for layer in layers:
            self.handles.append(layer.register_forward_hook(self.capture_activation))
            self.handles.append(layer.register_full_backward_hook(self.capture_backprop))

    def capture_activation(self, module, inputs, output):
        self.activations[module].append(inputs[0].detach())

    def capture_backprop(self, module, grad_input, grad_output):
        backprop = grad_output[0].detach() * len(grad_output[0])
        sample = torch.einsum("no,ni->noi", backprop, self.activations[module].pop())
        if getattr(module.weight, "grad_sample", None) is None:
            module.weight.grad_sample = sample
        else:
            module.weight.grad_sample = module.weight.grad_sample + sample

    def clear(self):
        for layer in self.layers:
            layer.weight.grad_sample = None

    def close(self):
        for handle in self.handles:
            handle.remove()

    def norms(self):
        squares = [layer.weight.grad_sample.flatten(1).pow(2).sum(1) for layer in self.layers]
        return torch.stack(squares).sum(0).sqrt()

    def write_clipped(self, norms, max_norm):
        factor = (max_norm / norms.clamp(min=1e-6)).clamp(max=1.0)
        for layer in self.layers:
            layer.weight.grad = torch.einsum("n,noi->oi", factor, layer.weight.grad_sample) / BATCH


def make_pairs():
    anchor = torch.randint(0, VOCAB, (BATCH, LENGTH))
    other = torch.randint(0, VOCAB, (BATCH, LENGTH))
    same = torch.rand(BATCH) < 0.5
    other[same] = anchor[same].flip(1)
    other[same, 0] = torch.randint(0, VOCAB, (int(same.sum()),))
    return anchor, other, same.float() * 2 - 1


def main():
    encoder = Encoder()
    layers = [encoder.fc1, encoder.fc2]
    per_sample = PerSampleGrads(layers)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.5)
    for step in range(12):
        anchor, other, target = make_pairs()
        optimizer.zero_grad()
        per_sample.clear()
        similarity = F.cosine_similarity(encoder(anchor), encoder(other))
        loss = F.mse_loss(similarity, target)
        loss.backward()
        norms = per_sample.norms()
        mean_grad = encoder.fc1.weight.grad_sample.mean(0)
        gap = ((mean_grad - encoder.fc1.weight.grad).norm() / encoder.fc1.weight.grad.norm()).item()
        per_sample.write_clipped(norms, max_norm=0.3)
        optimizer.step()
        if step % 4 == 3:
            print(f"step {step + 1}: loss {loss.item():.3f}  median norm {norms.median().item():.3f}")
    per_sample.close()
    print(f"mean per-sample gradient and batch gradient of fc1 differ by {gap:.4f}")


if __name__ == "__main__":
    main()
