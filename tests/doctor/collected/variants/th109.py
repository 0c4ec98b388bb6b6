"""Fine-tune a small GPT-2 and capture the outputs of its attention projections."""
from dataclasses import dataclass, field

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel


@dataclass
class ProbeConfig:
    suffixes: tuple = ("attn.c_attn", "attn.c_proj")
    layer_types: tuple = (nn.Linear,)
    keep_last: int = 4


@dataclass
class AttentionProbe:
    cfg: ProbeConfig
    cache: dict = field(default_factory=dict)
    handles: dict = field(default_factory=dict)

    def attach(self, model):
        for name, module in model.named_modules():
            if isinstance(module, self.cfg.layer_types) and name.endswith(self.cfg.suffixes):
                self.cache[name] = []
                self.handles[name] = module.register_forward_hook(self._make_hook(name))
        return self

    def _make_hook(self, name):
        def hook(module, args, output):
            self.cache[name] = (self.cache[name] + [output.detach()])[-self.cfg.keep_last:]

        return hook

    def rms(self):
        return {name: values[-1].pow(2).mean().sqrt().item() for name, values in self.cache.items()}


def build_model():
    config = GPT2Config(
        vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0, use_cache=False
    )
    return GPT2LMHeadModel(config)


def main():
    torch.manual_seed(0)
    model = build_model()
    probe = AttentionProbe(ProbeConfig()).attach(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(1, 64, (8, 16))
    for step in range(3):
        loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.3f}")
    print("activation rms per projection:", probe.rms())


if __name__ == "__main__":
    main()
