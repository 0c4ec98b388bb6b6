"""Textual-inversion style fine-tuning: learn one new token of a CLIP text encoder."""
import torch
import torch.nn.functional as F
from transformers import CLIPTextConfig, CLIPTextModel

torch.set_num_threads(1)

VOCAB = 60
NEW_TOKEN = VOCAB
STEPS = 40
LEARNING_RATE = 2e-2


def build_text_encoder():
    torch.manual_seed(4)
    config = CLIPTextConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=16,
        bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )
    encoder = CLIPTextModel(config)
    encoder.resize_token_embeddings(VOCAB + 1, mean_resizing=False)
    return encoder.eval()


def prepare_for_inversion(encoder):
    """Freeze the encoder; only the row of the new token in the embedding matrix may learn."""
    for p in encoder.parameters():
        p.requires_grad_(False)
    weight = encoder.get_input_embeddings().weight
    with torch.no_grad():
        weight[NEW_TOKEN] = weight[:VOCAB].mean(dim=0)
    weight.requires_grad_(True)

    row_mask = torch.zeros(len(weight), 1)
    row_mask[NEW_TOKEN] = 1.0
    weight.register_hook(lambda grad: grad * row_mask)
    return weight


def prompts_with_new_token(n, gen):
    ids = torch.randint(2, VOCAB, (n, 8), generator=gen)
    ids[:, 0] = 0
    ids[:, 4] = NEW_TOKEN
    ids[:, -1] = 1
    return ids


def pooled_text(encoder, ids):
    hidden = encoder(input_ids=ids).last_hidden_state
    return F.normalize(hidden.mean(dim=1), dim=-1)


def main():
    encoder = build_text_encoder()
    gen = torch.Generator().manual_seed(9)
    plain_ids = torch.randint(2, VOCAB, (16, 8), generator=gen)
    concept = F.normalize(torch.randn(1, 32, generator=gen), dim=-1)

    weight = prepare_for_inversion(encoder)
    pretrained = weight.detach()[:VOCAB].clone()
    with torch.no_grad():
        plain_before = pooled_text(encoder, plain_ids)

    optimizer = torch.optim.AdamW([weight], lr=LEARNING_RATE, weight_decay=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
    for step in range(1, STEPS + 1):
        text = pooled_text(encoder, prompts_with_new_token(8, gen))
        loss = (1.0 - text @ concept.T).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 10 == 0:
            print(f"step {step}  loss {loss.item():.4f}")

    with torch.no_grad():
        plain_after = pooled_text(encoder, plain_ids)
    moved = (weight.detach()[:VOCAB] - pretrained).norm() / pretrained.norm()
    print(f"new token moved {(weight[NEW_TOKEN].detach() - pretrained.mean(dim=0)).norm().item():.3f}")
    print(f"relative change of the {VOCAB} pretrained rows {moved.item():.2e}")
    print(f"change of prompts without the new token {(plain_after - plain_before).abs().max().item():.2e}")


if __name__ == "__main__":
    main()
