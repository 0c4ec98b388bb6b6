"""Layer-wise learning-rate decay for a Llama, written as backward hooks."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(22)
torch.set_num_threads(1)
DECAY = 0.5
N_LAYERS = 4


def build():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=48, hidden_size=32, intermediate_size=64, num_hidden_layers=N_LAYERS,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=32,
        bos_token_id=1, eos_token_id=2, pad_token_id=0, initializer_range=0.08))


def layer_factors(n, decay):
    """The top layer learns at full speed, each one below at `decay` times the next."""
    return [decay ** (n - 1 - i) for i in range(n)]


def install_decay(model, factors):
    handles = []
    for layer, factor in zip(model.model.layers, factors):
        def scale(module, grad_input, grad_output, factor=factor):
            # every gradient that belongs to this layer is multiplied by its factor
            return tuple(g * factor if g is not None else None for g in grad_input)

        handles.append(layer.register_full_backward_hook(scale))
    return handles


def weight_gradients(model, ids):
    model.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    return [torch.cat([p.grad.flatten() for p in layer.parameters()]).norm().item()
            for layer in model.model.layers]


def train(model, steps=8):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        ids = (torch.arange(8)[:, None] * 3 + torch.arange(10)[None] + step) % 45 + 3
        loss = model(input_ids=ids, labels=ids).loss
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    model = build().train()
    ids = torch.randint(3, 48, (6, 10))
    plain = weight_gradients(model, ids)

    factors = layer_factors(N_LAYERS, DECAY)
    handles = install_decay(model, factors)
    decayed = weight_gradients(model, ids)
    for i in range(N_LAYERS):
        print(f"layer {i}: planned factor {factors[i]:.4f}, gradient {plain[i]:.4f} -> {decayed[i]:.4f}, "
              f"observed factor {decayed[i] / plain[i]:.4f}")
    off = max(abs(d / p - f) for d, p, f in zip(decayed, plain, factors))
    print(f"largest gap between plan and gradient: {off:.3f}")
    print(f"loss after training {train(model):.4f}")
    for h in handles:
        h.remove()


if __name__ == "__main__":
    main()
