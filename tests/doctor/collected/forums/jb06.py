"""Head importance of a GPT-2 style model by zero ablation; one head was already pruned in an earlier step."""
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(5)
torch.set_num_threads(1)

N_HEAD = 4
HEAD_DIM = 16
PRUNED = (1, 2)


def build_model():
    config = GPT2Config(
        vocab_size=100,
        n_positions=48,
        n_embd=N_HEAD * HEAD_DIM,
        n_layer=2,
        n_head=N_HEAD,
        initializer_range=0.15,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config).eval()


@torch.no_grad()
def prune_head(model, layer, head):
    """Removes the contribution of one head for good: its rows of the output projection become zero."""
    rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
    model.transformer.h[layer].attn.c_proj.weight[rows] = 0.0


def ablate_head(attn, head):
    def hook(module, inputs, output):
        hidden = output[0]
        batch, length, _ = hidden.shape
        heads = hidden.view(batch, length, N_HEAD, HEAD_DIM).clone()
        heads[:, :, head] = 0.0
        return (heads.view(batch, length, -1),) + output[1:]

    return attn.register_forward_hook(hook)


@torch.no_grad()
def token_loss(model, tokens):
    logits = model(input_ids=tokens, use_cache=False).logits
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def main():
    model = build_model()
    prune_head(model, *PRUNED)
    tokens = torch.randint(0, 100, (8, 32))
    base = token_loss(model, tokens)
    print(f"loss of the pruned model: {base.item():.4f}")

    effect = {}
    for layer in range(2):
        for head in range(N_HEAD):
            handle = ablate_head(model.transformer.h[layer].attn, head)
            effect[layer, head] = (token_loss(model, tokens) - base).item()
            handle.remove()

    for (layer, head), delta in effect.items():
        note = "  (pruned before)" if (layer, head) == PRUNED else ""
        print(f"layer {layer} head {head}: |change of loss| {abs(delta):.5f}{note}")
    print(f"loss after the sweep: {token_loss(model, tokens).item():.4f}")


if __name__ == "__main__":
    main()
