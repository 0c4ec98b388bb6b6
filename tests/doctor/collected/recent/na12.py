"""Preventative steering: fine-tune a small Llama while a fixed persona vector
is added to the attention output, with activation checkpointing switched on.
The first step is compared with a run that stores all activations."""
import contextlib

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, SEQ, LAYERS = 48, 14, (1, 2)

cfg = LlamaConfig(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=64,
    initializer_range=0.08,
)


def make_model(checkpointing):
    torch.manual_seed(5)
    model = LlamaForCausalLM(cfg)
    model.config.use_cache = False
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.train()


@contextlib.contextmanager
def steer(model, vector, strength):
    def add_vector(module, args, output):
        return output + strength * vector

    handles = [model.model.layers[i].self_attn.o_proj.register_forward_hook(add_vector) for i in LAYERS]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def batch(gen):
    start = torch.randint(0, VOCAB, (12, 1), generator=gen)
    return (start + 5 * torch.arange(SEQ)) % VOCAB


def training_step(model, ids, vector):
    with steer(model, vector, strength=2.0):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return loss.item()


def flat_gradient(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


gen = torch.Generator().manual_seed(3)
vector = torch.randn(cfg.hidden_size, generator=gen)
vector = vector / vector.norm()

first = batch(gen)
plain, saving = make_model(False), make_model(True)
loss_plain = training_step(plain, first, vector)
loss_saving = training_step(saving, first, vector)
grad_plain, grad_saving = flat_gradient(plain), flat_gradient(saving)
print(f"first loss: stored activations {loss_plain:.4f}, checkpointed {loss_saving:.4f}")
print(f"relative gradient difference: {(grad_plain - grad_saving).norm() / grad_plain.norm():.4f}")

for model in (plain, saving):
    gen = torch.Generator().manual_seed(8)
    optim = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(20):
        optim.zero_grad()
        loss = training_step(model, batch(gen), vector)
        optim.step()
    kind = "checkpointed" if model is saving else "stored activations"
    print(f"{kind}: steered loss after 20 steps {loss:.4f}")
