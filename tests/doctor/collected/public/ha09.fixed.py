"""NEFTune-style embedding noise for fine-tuning a small T5."""
import torch
from transformers import T5Config, T5ForConditionalGeneration

torch.set_num_threads(1)

VOCAB = 64
LENGTH = 10


def build_model():
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=VOCAB,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
        use_cache=False,
    )
    return T5ForConditionalGeneration(config)


class EmbeddingNoise:
    def __init__(self, model, alpha):
        self.alpha = alpha
        self.generator = torch.Generator().manual_seed(42)
        embeddings = model.encoder.get_input_embeddings()
        self.handle = embeddings.register_forward_hook(self.add_noise)

    def add_noise(self, module, args, output):
        if not module.training:
            return output
        dims = output.shape[1] * output.shape[2]
        bound = self.alpha / dims**0.5
        noise = torch.rand(output.shape, generator=self.generator) * 2 - 1
        return output + bound * noise

    def remove(self):
        self.handle.remove()


def reversal_batch(generator, n=16):
    source = torch.randint(2, VOCAB, (n, LENGTH), generator=generator)
    return source, source.flip(1)


def fine_tune(alpha, steps=25):
    model = build_model().train()
    noise = EmbeddingNoise(model, alpha)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(5)
    losses = []
    for _ in range(steps):
        source, target = reversal_batch(generator)
        loss = model(input_ids=source, labels=target).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    noise.remove()
    return model.eval(), losses


@torch.no_grad()
def evaluate(model):
    source, target = reversal_batch(torch.Generator().manual_seed(99), n=64)
    return model(input_ids=source, labels=target).loss.item()


def main():
    curves = {}
    for alpha in (0.0, 10.0):
        model, losses = fine_tune(alpha)
        curves[alpha] = torch.tensor(losses)
        print(f"alpha {alpha:>4}: train loss {losses[-1]:.5f}, eval loss {evaluate(model):.5f}")
    gap = (curves[10.0] - curves[0.0]).abs().max()
    print(f"largest gap between the two training curves: {gap:.5f}")


if __name__ == "__main__":
    main()
