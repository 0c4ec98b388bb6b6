"""Gradient profile through a frozen Llama with adapters in the upper half only."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(43)
torch.set_num_threads(1)


def build():
    base = LlamaForCausalLM(LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=32,
        initializer_range=0.1, bos_token_id=1, eos_token_id=2, pad_token_id=0))
    return get_peft_model(base, LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], layers_to_transform=[2, 3]))


def profile(model, ids):
    """Norm of the gradient at every layer output, frozen layers included."""
    layers = model.base_model.model.model.layers
    norms = [None] * len(layers)

    def make(i):
        def hook(module, grad_input, grad_output):
            norms[i] = grad_output[0].norm().item()
        return hook

    handles = [layer.register_full_backward_hook(make(i)) for i, layer in enumerate(layers)]
    model.zero_grad()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    for h in handles:
        h.remove()
    return norms


def main():
    model = build()
    model.train()
    ids = (torch.arange(8)[:, None] * 3 + 2 * torch.arange(10)[None]) % 60 + 3

    # nothing below layer 2 is trained, so by itself the graph would start there;
    # a graph from the embeddings on lets the hooks of the frozen layers fire as well
    model.enable_input_require_grads()
    full = profile(model, ids)
    model.disable_input_require_grads()

    # without it the lower layers have no gradient, which is what training uses
    lean = profile(model, ids)
    for i in range(4):
        low = "not part of the graph" if lean[i] is None else f"{lean[i]:.5f}"
        print(f"layer {i}: with input gradients {full[i]:.5f}, lean graph {low}")
    frozen = [n for n, p in model.named_parameters() if not p.requires_grad and p.grad is not None]
    print("frozen parameters that received a gradient:", len(frozen))


main()
