"""Fine-tune LoRA adapters while a fixed steering vector is active, with and without activation checkpointing."""
from contextlib import contextmanager

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)

VOCAB = 60
LENGTH = 12
HIDDEN = 32
STEER_LAYER = 1


def build_model(checkpointing):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=32,
        use_cache=False,
        initializer_range=0.1,
    )
    model = LlamaForCausalLM(config)
    if checkpointing:
        model.activation_checkpointing_enable()
    lora = LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    return get_peft_model(model, lora).train()


@contextmanager
def steering(model, vector):
    layer = model.get_base_model().model.layers[STEER_LAYER]

    def add_vector(module, args, output):
        return output + vector

    handle = layer.self_attn.o_proj.register_forward_hook(add_vector)
    try:
        yield
    finally:
        handle.remove()


def batches(steps):
    generator = torch.Generator().manual_seed(7)
    for _ in range(steps):
        start = torch.randint(0, VOCAB, (8, 1), generator=generator)
        yield (start + 2 * torch.arange(LENGTH)) % VOCAB


def fine_tune(checkpointing, steps=15):
    model = build_model(checkpointing)
    vector = torch.randn(HIDDEN, generator=torch.Generator().manual_seed(1))
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trainable, lr=0.5)
    for batch in batches(steps):
        optimizer.zero_grad()
        with steering(model, vector):
            loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
    adapters = torch.cat([p.detach().flatten() for p in trainable])
    return loss.item(), adapters


def main():
    results = {}
    for checkpointing in (False, True):
        loss, adapters = fine_tune(checkpointing)
        results[checkpointing] = adapters
        label = "with checkpointing" if checkpointing else "without checkpointing"
        print(f"{label:<24} loss {loss:.4f}  adapter norm {adapters.norm():.4f}")
    difference = (results[True] - results[False]).norm() / results[False].norm()
    print(f"relative difference of the adapters: {difference:.4f}")


if __name__ == "__main__":
    main()
