"""LoRA for a small T5; every adapter weight is clipped and updated as soon as its gradient is complete."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import T5Config, T5ForConditionalGeneration

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB = 48
LENGTH = 8


def build_model():
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
    model = T5ForConditionalGeneration(config)
    lora = LoraConfig(r=8, lora_alpha=32, target_modules=["q", "k", "v", "o", "wi", "wo"], task_type="SEQ_2_SEQ_LM")
    return get_peft_model(model, lora)


class BackwardOptimizer:
    """One Adam per trainable tensor, run from the hook that fires after its gradient has been accumulated."""

    def __init__(self, model, lr, max_norm):
        self.max_norm = max_norm
        self.adams = {p: torch.optim.Adam([p], lr=lr) for p in model.parameters() if p.requires_grad}
        self.handles = [p.register_post_accumulate_grad_hook(self.step) for p in self.adams]
        self.clipped = 0
        self.updates = 0

    def step(self, param):
        norm = torch.nn.utils.clip_grad_norm_([param], self.max_norm)
        self.clipped += int(norm > self.max_norm)
        self.updates += 1
        self.adams[param].step()
        param.grad = None

    def close(self):
        for handle in self.handles:
            handle.remove()


def copy_batch(generator, n=16):
    source = torch.randint(2, VOCAB, (n, LENGTH), generator=generator)
    return source, source.roll(1, dims=1)


def main(steps=30):
    model = build_model().train()
    optimizer = BackwardOptimizer(model, lr=2e-2, max_norm=0.5)
    generator = torch.Generator().manual_seed(1)
    for step in range(1, steps + 1):
        source, target = copy_batch(generator)
        loss = model(input_ids=source, labels=target).loss
        loss.backward()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    optimizer.close()

    tensors = len(optimizer.adams)
    left = sum(p.grad is not None for p in model.parameters())
    print(f"{tensors} adapter tensors, {optimizer.updates / tensors / steps:.1f} updates per tensor and step")
    print(f"clipped {optimizer.clipped} of {optimizer.updates}, gradients left {left}")


if __name__ == "__main__":
    main()
