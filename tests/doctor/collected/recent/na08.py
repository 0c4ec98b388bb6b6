"""Train a small Llama while the attention branch of the upper layers is kept
from sending gradient down into the residual stream (its own weights learn)."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, SEQ = 48, 16
DETACHED_LAYERS = (1, 2, 3)


def make_model():
    torch.manual_seed(1)
    cfg = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.1,
    )
    return LlamaForCausalLM(cfg)


def block_attention_gradient(model, layers):
    """Replace the gradient that attention returns to its input by zeros."""

    def drop(module, grad_input, grad_output):
        return tuple(None if g is None else torch.zeros_like(g) for g in grad_input)

    return [model.model.layers[i].self_attn.register_full_backward_hook(drop) for i in layers]


def batch(gen):
    start = torch.randint(0, VOCAB, (12, 1), generator=gen)
    stride = torch.randint(1, 5, (12, 1), generator=gen)
    return (start + stride * torch.arange(SEQ)) % VOCAB


def first_layer_gradient(model, ids):
    model.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    block = model.model.layers[0]
    return torch.cat([p.grad.flatten() for p in block.parameters()])


def train(model, steps, seed):
    gen = torch.Generator().manual_seed(seed)
    optim = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        ids = batch(gen)
        loss = model(input_ids=ids, labels=ids).loss
        optim.zero_grad()
        loss.backward()
        optim.step()
    return loss.item()


probe = batch(torch.Generator().manual_seed(9))
ordinary = first_layer_gradient(make_model(), probe)

model = make_model()
block_attention_gradient(model, DETACHED_LAYERS)
restricted = first_layer_gradient(model, probe)

change = ((restricted - ordinary).norm() / ordinary.norm()).item()
own = model.model.layers[2].self_attn.q_proj.weight.grad.norm().item()
loss_plain = train(make_model(), 15, seed=5)
loss_blocked = train(model, 15, seed=5)

print(f"q_proj of layer 2 still learns: gradient norm {own:.4f}")
print(f"relative change of the gradient in layer 0: {change:.4f}")
print(f"loss after 15 steps: ordinary {loss_plain:.4f}, attention blocked {loss_blocked:.4f}")
