"""Attention rollout for a small ViT: which patches does the class token look at?"""
import torch
from transformers import ViTConfig, ViTForImageClassification

torch.manual_seed(14)
torch.set_num_threads(1)


class AttentionRollout:
    def __init__(self, model, residual=0.5):
        self.model = model
        self.residual = residual
        self.maps = []
        self.handles = []
        for layer in model.vit.layers:
            self.handles.append(layer.attention.register_forward_hook(self._collect))

    def _collect(self, module, args, output):
        # attention modules return (context, probabilities)
        context, probs = output
        if probs is not None:
            self.maps.append(probs.detach())

    @torch.no_grad()
    def __call__(self, pixels):
        self.maps.clear()
        self.model(pixel_values=pixels)
        tokens = (pixels.shape[-1] // 4) ** 2 + 1
        rollout = torch.eye(tokens).expand(len(pixels), -1, -1)
        for attn in self.maps:
            fused = attn.mean(dim=1)
            fused = self.residual * fused + (1 - self.residual) * torch.eye(tokens)
            fused = fused / fused.sum(dim=-1, keepdim=True)
            rollout = fused @ rollout
        return rollout[:, 0, 1:]          # class token -> patches

    def remove(self):
        for h in self.handles:
            h.remove()


def main():
    cfg = ViTConfig(image_size=16, patch_size=4, hidden_size=32, intermediate_size=64,
                    num_hidden_layers=4, num_attention_heads=4, num_labels=3,
                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = ViTForImageClassification(cfg).eval()
    with torch.no_grad():
        for p in model.vit.layers.parameters():
            if p.ndim == 2:
                p.mul_(6.0)               # sharper attention than a fresh initialisation

    images = torch.randn(3, 3, 16, 16)
    images[:, :, 4:8, 8:12] += 3.0        # one bright patch per image

    explain = AttentionRollout(model)
    weights = explain(images)
    for i, w in enumerate(weights):
        grid = w.reshape(4, 4)
        flat = int(grid.argmax())
        print(f"image {i}: strongest patch ({flat // 4}, {flat % 4}), weight {w.max().item():.4f}, "
              f"mass on patches {w.sum().item():.4f}")
    print("layers used in the rollout:", len(explain.maps))
    explain.remove()


main()
