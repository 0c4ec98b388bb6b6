"""Checkpointed Llama training with a token counter and residual norms per decoder layer."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(40)
torch.set_num_threads(1)


class ResidualMeter:
    """Hooks the decoder layers themselves; the checkpoint lies inside their forward."""

    def __init__(self, model):
        self.tokens = [0] * len(model.model.layers)
        self.energy = [0.0] * len(model.model.layers)
        self.handles = [layer.register_forward_hook(self._make(i))
                        for i, layer in enumerate(model.model.layers)]

    def _make(self, i):
        def hook(module, args, output):
            hidden = output[0] if isinstance(output, tuple) else output
            self.tokens[i] += hidden.shape[0] * hidden.shape[1]
            self.energy[i] += hidden.detach().pow(2).sum().item()
        return hook

    def report(self):
        for i, (n, e) in enumerate(zip(self.tokens, self.energy)):
            print(f"layer {i}: {n} tokens, rms {(e / n / 24) ** 0.5:.4f}")

    def close(self):
        for h in self.handles:
            h.remove()


def main():
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=60, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
        bos_token_id=1, eos_token_id=2, pad_token_id=0, use_cache=False))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data = [torch.randint(3, 60, (4, 16)) for _ in range(6)]

    meter = ResidualMeter(model)
    for step, ids in enumerate(data):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
        print(f"step {step}: loss {loss.item():.4f}")
    meter.close()
    meter.report()
    print("tokens in the corpus:", sum(b.numel() for b in data))


if __name__ == "__main__":
    main()
