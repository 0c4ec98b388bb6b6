"""Grad-CAM for a small ViT classifier."""
import torch
import torch.nn.functional as F
from transformers import ViTConfig, ViTForImageClassification

torch.manual_seed(0)
torch.set_num_threads(1)

IMAGE = 24
PATCH = 6
GRID = IMAGE // PATCH


def build_model():
    config = ViTConfig(
        image_size=IMAGE,
        patch_size=PATCH,
        num_channels=1,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        num_labels=2,
    )
    return ViTForImageClassification(config)


def make_images(n, generator):
    labels = torch.randint(0, 2, (n,), generator=generator)
    images = 0.3 * torch.randn(n, 1, IMAGE, IMAGE, generator=generator)
    images[labels == 1, :, 6:12, 12:18] += 1.5
    return images, labels


class GradCam:
    def __init__(self, model, layer):
        self.model = model
        self.activation = None
        self.gradient = None
        self.handle = layer.register_forward_hook(self.save_activation)

    def save_activation(self, module, args, output):
        self.activation = output.detach()
        output.register_hook(self.save_gradient)

    def save_gradient(self, grad):
        self.gradient = grad.detach()

    def __call__(self, logits, target):
        self.model.zero_grad()
        logits[0, target].backward()
        tokens, grads = self.activation[0, 1:], self.gradient[0, 1:]
        weights = grads.mean(dim=0)
        cam = (tokens * weights).sum(dim=-1).clamp(min=0)
        return (cam / cam.max().clamp(min=1e-8)).reshape(GRID, GRID)

    def close(self):
        self.handle.remove()


def train(model, steps=40):
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    model.train()
    for _ in range(steps):
        images, labels = make_images(32, generator)
        loss = F.cross_entropy(model(pixel_values=images).logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    return loss.item()


def main():
    model = build_model()
    print(f"training loss {train(model):.4f}")

    images, labels = make_images(8, torch.Generator().manual_seed(2))
    cam = GradCam(model, model.vit.layers[-1].layernorm_before)
    with torch.no_grad():
        for i in (labels == 1).nonzero().flatten()[:2].tolist():
            logits = model(pixel_values=images[i : i + 1]).logits
            heatmap = cam(logits, target=1)
            print(f"image {i}: prediction {logits.argmax().item()}")
            for row in heatmap:
                print("  " + "  ".join(f"{value:.2f}" for value in row.tolist()))
    cam.close()


if __name__ == "__main__":
    main()
