"""Which attention heads matter? Switch off one at a time and look at the loss."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(24)
torch.set_num_threads(1)
HEADS, HEAD_DIM = 4, 8


def build():
    cfg = LlamaConfig(
        vocab_size=60, hidden_size=HEADS * HEAD_DIM, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=32,
        initializer_range=0.15, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    return LlamaForCausalLM(cfg)


def fit(model, steps=15):
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    model.train()
    for step in range(steps):
        ids = (torch.arange(8)[:, None] * 5 + 2 * torch.arange(10)[None] + step) % 57 + 3
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        opt.step()
        opt.zero_grad()


def prune_head(model, layer, head):
    """Earlier pruning run: nothing of this head reaches the residual stream any more."""
    span = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
    with torch.no_grad():
        model.model.layers[layer].self_attn.o_proj.weight[:, span] = 0.0


def silence(model, layer, head):
    """The heads lie side by side in the input of the output projection."""
    span = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)

    def hook(module, args):
        context = args[0].clone()
        context[..., span] = 0.0
        return (context,)

    return model.model.layers[layer].self_attn.o_proj.register_forward_pre_hook(hook)


@torch.no_grad()
def loss_of(model, ids):
    return model(input_ids=ids, labels=ids).loss.item()


def main():
    model = build()
    fit(model)
    model.eval()
    prune_head(model, layer=0, head=1)

    ids = (torch.arange(6)[:, None] * 7 + 2 * torch.arange(10)[None]) % 57 + 3
    base = loss_of(model, ids)
    print(f"loss with all heads {base:.4f}")
    scores = {}
    for layer in range(2):
        for head in range(HEADS):
            handle = silence(model, layer, head)
            scores[layer, head] = loss_of(model, ids) - base
            handle.remove()
            print(f"layer {layer} head {head}: importance {scores[layer, head]:+.5f}")
    order = sorted(scores, key=lambda k: abs(scores[k]))
    print("next candidates for pruning:", order[:3])


if __name__ == "__main__":
    main()
