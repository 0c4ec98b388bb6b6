"""Rank the MLP layers of a small GPT-2 by how much the loss rises when a layer is mean-ablated."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB = 40
LENGTH = 16


def build_model():
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=LENGTH,
        n_embd=32,
        n_layer=3,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def counting_batch(n, generator):
    start = torch.randint(0, VOCAB, (n, 1), generator=generator)
    step = torch.randint(1, 4, (n, 1), generator=generator)
    return (start + step * torch.arange(LENGTH)) % VOCAB


def train(model, steps=60):
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    model.train()
    for _ in range(steps):
        batch = counting_batch(32, generator)
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    return loss.item()


@torch.no_grad()
def mean_activations(model, batch):
    means = {}
    handles = []
    for idx, block in enumerate(model.transformer.h):

        def save_mean(module, args, output, idx=idx):
            means[idx] = output.mean(dim=(0, 1))

        handles.append(block.mlp.register_forward_hook(save_mean))
    model(input_ids=batch)
    for handle in handles:
        handle.remove()
    return means


@torch.no_grad()
def loss_with_ablation(model, batch, layer, mean):
    def ablate(module, args, output):
        return mean.expand_as(output)

    handle = model.transformer.h[layer].mlp.register_forward_hook(ablate)
    try:
        return model(input_ids=batch, labels=batch).loss.item()
    finally:
        handle.remove()


def main():
    model = build_model()
    final = train(model)
    print(f"training loss {final:.3f}")

    batch = counting_batch(64, torch.Generator().manual_seed(2))
    means = mean_activations(model, batch)
    with torch.no_grad():
        baseline = model(input_ids=batch, labels=batch).loss.item()
    print(f"baseline loss {baseline:.4f}")

    effects = {}
    for layer, mean in means.items():
        effects[layer] = loss_with_ablation(model, batch, layer, mean) - baseline
        print(f"layer {layer}: loss increase {effects[layer]:+.4f}")
    total = sum(abs(effect) for effect in effects.values())
    print(f"summed effect of all layers: {total:.4f}")


if __name__ == "__main__":
    main()
