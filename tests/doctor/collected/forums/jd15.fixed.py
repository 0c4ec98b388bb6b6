"""Follows how far LoRA fine-tuning moves the value projections of each layer."""
import warnings

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

warnings.filterwarnings("ignore")
torch.manual_seed(0)
torch.set_num_threads(1)


def build_model():
    config = LlamaConfig(vocab_size=50, hidden_size=32, intermediate_size=64,
                         num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=4, max_position_embeddings=32)
    return LlamaForCausalLM(config)


class ProjectionTracker:
    def __init__(self, model, probe):
        self.probe = probe
        self.outputs = {}
        self.start = None
        self.projections = [m for n, m in model.named_modules()
                            if n.endswith("self_attn.v_proj")]

    def keep(self, index):
        def hook(module, args, output):
            self.outputs[index] = output.detach()
        return hook

    @torch.no_grad()
    def measure(self, model):
        handles = [module.register_forward_hook(self.keep(index))
                   for index, module in enumerate(self.projections)]
        model(input_ids=self.probe)
        for handle in handles:
            handle.remove()
        current = dict(self.outputs)
        if self.start is None:
            self.start = current
        return {k: ((v - self.start[k]).norm() / self.start[k].norm()).item()
                for k, v in current.items()}


def sample(batch=8, length=12):
    tokens = (torch.randint(0, 50, (batch, 1)) + 7 * torch.arange(length)) % 50
    return tokens


def main():
    base = build_model()
    probe = sample(4)
    model = get_peft_model(base, LoraConfig(r=4, lora_alpha=16, lora_dropout=0.0,
                                            target_modules=["v_proj"]))
    tracker = ProjectionTracker(model, probe)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    tracker.measure(model)
    model.train()
    for step in range(1, 16):
        tokens = sample()
        loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            drift = tracker.measure(model)
            text = ", ".join(f"layer {k} moved {v:.4f}" for k, v in drift.items())
            print(f"step {step}: loss {loss.item():.3f}; {text}")


if __name__ == "__main__":
    main()
