"""Decode with LoRA experts whose contribution is gated by the tokens seen so far."""
from functools import partial

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB = 100


def build_model():
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        use_cache=False,
        initializer_range=0.1,
    )
    lora = LoraConfig(
        r=4,
        lora_alpha=8,
        target_modules=["q_proj", "v_proj"],
        init_lora_weights=False,
        task_type="CAUSAL_LM",
    )
    return get_peft_model(LlamaForCausalLM(config), lora).eval()


def scale_adapter(gate, module, args, output):
    return output * gate[:, None, None]


class GatedLora(nn.Module):
    """Predicts one gate per sequence from the adapter-free hidden states and scales the adapters with it."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.router = nn.Linear(model.config.hidden_size, 1)
        self.adapters = [m for name, m in model.named_modules() if name.endswith("lora_B.default")]
        self.handles = []

    def gate(self, input_ids):
        with self.model.disable_adapter():
            hidden = self.model(input_ids, output_hidden_states=True).hidden_states[-1]
        return torch.sigmoid(self.router(hidden.mean(dim=1))).squeeze(-1)

    def forward(self, input_ids):
        self.remove_hooks()
        gate = self.gate(input_ids)
        self.handles = [m.register_forward_hook(partial(scale_adapter, gate)) for m in self.adapters]
        return self.model(input_ids).logits

    def remove_hooks(self):
        for handle in self.handles:
            handle.remove()
        self.handles = []


@torch.no_grad()
def greedy_decode(gated, input_ids, new_tokens):
    for _ in range(new_tokens):
        logits = gated(input_ids)
        input_ids = torch.cat([input_ids, logits[:, -1].argmax(dim=-1, keepdim=True)], dim=1)
    gated.remove_hooks()
    return input_ids


@torch.no_grad()
def main():
    model = build_model()
    gated = GatedLora(model).eval()
    prompts = torch.randint(0, VOCAB, (2, 8), generator=torch.Generator().manual_seed(4))

    ungated_before = model(prompts).logits
    sequences = greedy_decode(gated, prompts, new_tokens=6)
    ungated_after = model(prompts).logits

    for i, row in enumerate(sequences):
        print(f"sequence {i}: {row[prompts.shape[1]:].tolist()}")
    first_step = gated(prompts)
    gated.remove_hooks()
    print(f"effect of the gate on the first step: {(first_step - ungated_before).abs().mean():.4f}")
    drift = (ungated_after - ungated_before).abs().max()
    print(f"ungated adapter, before against after decoding: {drift:.4f}")


if __name__ == "__main__":
    main()
