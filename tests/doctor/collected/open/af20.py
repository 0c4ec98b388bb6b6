"""Where should the adapters go? Rank the layers by the gradient that arrives at their output."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(19)
torch.set_num_threads(1)
N_LAYERS = 4


def build():
    base = LlamaForCausalLM(LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=N_LAYERS,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=32,
        initializer_range=0.1, bos_token_id=1, eos_token_id=2, pad_token_id=0))
    # a first guess: adapters in the upper half only
    return get_peft_model(base, LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], layers_to_transform=[2, 3]))


class GradientProfile:
    def __init__(self, layers):
        self.sums = [0.0] * len(layers)
        self.handles = [
            layer.register_full_backward_hook(self._make(i)) for i, layer in enumerate(layers)
        ]

    def _make(self, i):
        def hook(module, grad_input, grad_output):
            self.sums[i] += grad_output[0].norm().item()
        return hook

    def close(self):
        for h in self.handles:
            h.remove()


def main():
    model = build()
    model.train()
    profile = GradientProfile(model.base_model.model.model.layers)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)

    gen = torch.Generator().manual_seed(8)
    steps = 10
    for step in range(steps):
        start = torch.randint(3, 30, (8, 1), generator=gen)
        ids = start + 3 * torch.arange(10)[None]
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
        if step % 5 == 4:
            print(f"step {step + 1}: loss {loss.item():.4f}")
    profile.close()

    mean = [s / steps for s in profile.sums]
    for i, value in enumerate(mean):
        bar = "#" * int(40 * value / max(mean))
        print(f"layer {i}: {value:.5f} {bar}")
    # low score: the loss hardly depends on this layer, not worth an adapter
    worth = [i for i, value in enumerate(mean) if value > 0.25 * max(mean)]
    print("layers worth an adapter:", worth)


main()
