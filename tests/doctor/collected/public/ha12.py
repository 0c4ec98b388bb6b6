"""Learn the embeddings of two new tokens while the rest of the vocabulary stays as it is (textual inversion)."""
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
torch.set_num_threads(1)

OLD_VOCAB = 80
NEW_TOKENS = 2
LENGTH = 12


def build_model():
    config = GPT2Config(
        vocab_size=OLD_VOCAB + NEW_TOKENS,
        n_positions=LENGTH,
        n_embd=32,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        initializer_range=0.2,
    )
    return GPT2LMHeadModel(config)


def freeze_all_but_new_tokens(model):
    """Only the rows of the new tokens receive a gradient."""
    model.requires_grad_(False)
    weight = model.get_input_embeddings().weight
    weight.requires_grad_(True)
    mask = torch.zeros(weight.shape[0], 1)
    mask[OLD_VOCAB:] = 1.0
    handle = weight.register_hook(lambda grad: grad * mask)
    return weight, handle


def make_dataset(n=128):
    generator = torch.Generator().manual_seed(3)
    rows = torch.randint(0, OLD_VOCAB, (n, LENGTH), generator=generator)
    rows[:, 0] = OLD_VOCAB
    rows[:, 4] = OLD_VOCAB + 1
    rows[:, 1] = 7
    rows[:, 5] = 21
    return rows


def main(epochs=6):
    accelerator = Accelerator(cpu=True)
    model = build_model().train()
    weight, handle = freeze_all_but_new_tokens(model)
    before = weight.detach().clone()

    optimizer = torch.optim.AdamW([weight], lr=2e-2)
    loader = DataLoader(make_dataset(), batch_size=16)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    for epoch in range(epochs):
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            logits = model(input_ids=batch).logits
            concept = torch.cat([logits[:, 0], logits[:, 4]])
            target = torch.cat([batch[:, 1], batch[:, 5]])
            loss = torch.nn.functional.cross_entropy(concept, target)
            accelerator.backward(loss)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    handle.remove()

    change = (weight.detach() - before).abs().amax(dim=1)
    print(f"largest change of a new row: {change[OLD_VOCAB:].max():.6f}")
    print(f"largest change of an old row: {change[:OLD_VOCAB].max():.6f}")
    print(f"old rows left untouched: {(change[:OLD_VOCAB] == 0).sum().item()} of {OLD_VOCAB}")


if __name__ == "__main__":
    main()
