"""T5 fine-tuning with noisy embeddings (NEFTune): uniform noise on the looked-up vectors."""
import torch
from transformers import T5Config, T5ForConditionalGeneration

torch.set_num_threads(1)


class EmbeddingNoise:
    def __init__(self, model, alpha):
        self.alpha = alpha
        self.gen = torch.Generator().manual_seed(99)
        # the one table that both stacks read from
        self.tables = (model.encoder.embed_tokens, model.decoder.embed_tokens)
        self.handles = [t.register_forward_hook(self._perturb) for t in self.tables]

    def _perturb(self, module, args, output):
        if not module.training:
            return output
        scale = self.alpha / (output.shape[1] * output.shape[2]) ** 0.5
        noise = torch.rand(output.shape, generator=self.gen) * 2 - 1
        return output + scale * noise

    def remove(self):
        for h in self.handles:
            h.remove()


def build():
    torch.manual_seed(18)
    cfg = T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                   dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
    return T5ForConditionalGeneration(cfg)


def reverse_task(gen, n=16, length=6):
    src = torch.randint(2, 64, (n, length), generator=gen)
    return src, src.flip(1)


def train(alpha, steps=20):
    model = build()
    noise = EmbeddingNoise(model, alpha) if alpha else None
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    gen = torch.Generator().manual_seed(1)
    model.train()
    losses = []
    for _ in range(steps):
        src, tgt = reverse_task(gen)
        loss = model(input_ids=src, labels=tgt).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
    if noise:
        noise.remove()
    model.eval()
    with torch.no_grad():
        src, tgt = reverse_task(torch.Generator().manual_seed(2), n=64)
        held_out = model(input_ids=src, labels=tgt).loss.item()
    return losses, held_out


def main():
    table = []
    for alpha in (0.0, 5.0, 15.0):
        losses, held_out = train(alpha)
        table.append(losses[-1])
        print(f"alpha {alpha:>4}: first loss {losses[0]:.5f} last loss {losses[-1]:.5f} held-out {held_out:.5f}")
    spread = max(table) - min(table)
    print(f"spread of the last training loss over alpha: {spread:.5f}")


if __name__ == "__main__":
    main()
