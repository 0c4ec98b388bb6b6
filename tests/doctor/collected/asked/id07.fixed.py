import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)

VOCAB = 100
NEW_TOKENS = 3


def build_model():
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=32,
        n_embd=32,
        n_layer=2,
        n_head=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    model.resize_token_embeddings(VOCAB + NEW_TOKENS, mean_resizing=False)
    return model


def keep_new_rows_only(grad):
    grad = grad.clone()
    grad[:VOCAB] = 0
    return grad


def make_batches(count=30, batch_size=8, length=12):
    generator = torch.Generator().manual_seed(4)
    for _ in range(count):
        ids = torch.randint(0, VOCAB, (batch_size, length), generator=generator)
        places = torch.randint(0, length, (batch_size,), generator=generator)
        kinds = torch.randint(0, NEW_TOKENS, (batch_size,), generator=generator)
        ids[torch.arange(batch_size), places] = VOCAB + kinds
        yield ids


def train_new_tokens(model):
    for param in model.parameters():
        param.requires_grad_(False)
    embedding = model.get_input_embeddings().weight
    embedding.requires_grad_(True)
    handle = embedding.register_hook(keep_new_rows_only)

    optimizer = torch.optim.AdamW([embedding], lr=1e-2, weight_decay=0.0)
    losses = []
    for ids in make_batches():
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    handle.remove()
    return losses


def main():
    model = build_model()
    before = model.get_input_embeddings().weight.detach().clone()
    losses = train_new_tokens(model)
    after = model.get_input_embeddings().weight.detach()

    change = (after - before).abs()
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    print(f"new rows, largest change {change[VOCAB:].max().item():.6f}")
    print(f"original rows, largest change {change[:VOCAB].max().item():.6f}")


if __name__ == "__main__":
    main()
