"""A tiny ViT: embeddings frozen, a hook takes the class token of each layer, backward hooks log the flow."""

import torch
from transformers import ViTConfig, ViTForImageClassification

torch.manual_seed(0)

config = ViTConfig(
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    image_size=16,
    patch_size=4,
    num_labels=3,
)
model = ViTForImageClassification(config)
for param in model.vit.embeddings.parameters():
    param.requires_grad_(False)

class_tokens, flow = [], []
for name, module in model.named_modules():
    if module.__class__.__name__ == "ViTLayer":
        module.register_forward_hook(
            lambda m, args, out: class_tokens.append((out[0] if isinstance(out, tuple) else out)[:, 0].detach().mean())
        )
model.classifier.register_full_backward_hook(lambda m, grad_in, grad_out: flow.append(grad_out[0].norm()))
for param in model.parameters():
    if param.requires_grad:
        param.register_hook(lambda grad: flow.append(grad.norm()))

optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
losses = []
for step in range(4):
    images, labels = torch.randn(4, 3, 16, 16), torch.randint(3, (4,))
    loss = model(pixel_values=images, labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert class_tokens
result = [losses, class_tokens, flow, [p.detach().clone() for p in model.parameters()]]
