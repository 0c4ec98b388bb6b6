import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)


def build_model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    lora = LoraConfig(
        r=4, lora_alpha=8, lora_dropout=0.0, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"
    )
    return get_peft_model(LlamaForCausalLM(config), lora)


class GradientWatch:
    """Largest gradient norm of every parameter over the training run."""

    def __init__(self, model):
        self.peaks = {}
        self.handles = []
        for name, param in model.named_parameters():
            self.handles.append(param.register_hook(self._watch(name)))

    def _watch(self, name):
        def hook(grad):
            norm = grad.norm().item()
            self.peaks[name] = max(norm, self.peaks.get(name, 0.0))

        return hook

    def close(self):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


def train(model, steps=10):
    generator = torch.Generator().manual_seed(5)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-2)
    for step in range(steps):
        ids = torch.randint(3, 100, (4, 12), generator=generator)
        ids[:, 1::2] = ids[:, ::2]
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    model = build_model()
    watch = GradientWatch(model)
    loss = train(model)
    watch.close()
    print(f"loss {loss:.3f}")
    print(f"gradients watched for {len(watch.peaks)} tensors")
    adapters = [peak for name, peak in watch.peaks.items() if "lora_B" in name]
    print(f"largest gradient of a lora_B matrix {max(adapters):.4f}")


if __name__ == "__main__":
    main()
