"""LoRA fine-tuning of a small MLP with per-adapter gradient logging."""
from collections import OrderedDict

import torch
from peft import LoraConfig, get_peft_model
from torch import nn


class Base(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.net = nn.Sequential(OrderedDict(
            fc1=nn.Linear(8, dim), act=nn.GELU(), fc2=nn.Linear(dim, dim), act2=nn.GELU(), out=nn.Linear(dim, 2),
        ))

    def forward(self, x):
        return self.net(x)


class GradNormLogger:
    """History of gradient norms of all trainable parameters."""

    def __init__(self, model):
        self.names = {p: name for name, p in model.named_parameters() if p.requires_grad}
        self.history = {name: [] for name in self.names.values()}
        self.handles = [p.register_post_accumulate_grad_hook(self.log_norm) for p in self.names]

    def log_norm(self, grad):
        for p, name in self.names.items():
            if p is grad:
                self.history[name].append(grad.norm().item())

    def close(self):
        for handle in self.handles:
            handle.remove()


def main():
    torch.manual_seed(0)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["fc1", "fc2"])
    model = get_peft_model(Base(), config)
    logger = GradNormLogger(model)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    actual = {name: [] for name in logger.history}
    for _ in range(3):
        x = torch.randn(32, 8)
        loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        for p, name in logger.names.items():
            actual[name].append(p.grad.norm().item())
        optimizer.step()
    logger.close()
    for name in actual:
        short = name.removeprefix("base_model.model.net.")
        print(f"{short:28s} logged", [round(v, 4) for v in logger.history[name]],
              "p.grad.norm()", [round(v, 4) for v in actual[name]])


if __name__ == "__main__":
    main()
