import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)


def build_model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=90,
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


class AttentionInputs:
    """Mean norm of the vectors that enter each attention module."""

    def __init__(self, model):
        self.sums, self.counts = {}, {}
        layers = model.get_base_model().model.layers
        self.handles = [
            layer.self_attn.register_forward_pre_hook(self._observer(index), with_kwargs=True)
            for index, layer in enumerate(layers)
        ]

    def _observer(self, index):
        def observe(module, args, kwargs):
            norms = kwargs["hidden_states"].detach().norm(dim=-1)
            self.sums[index] = self.sums.get(index, 0.0) + norms.sum().item()
            self.counts[index] = self.counts.get(index, 0) + norms.numel()

        return observe

    def close(self):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


class AdapterGradients:
    def __init__(self, model):
        self.peaks = {}
        self.handles = [
            param.register_post_accumulate_grad_hook(self._keeper(name))
            for name, param in model.named_parameters()
            if param.requires_grad
        ]

    def _keeper(self, name):
        def keep(param):
            self.peaks[name] = max(self.peaks.get(name, 0.0), param.grad.norm().item())

        return keep

    def close(self):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


def main():
    model = build_model()
    inputs, gradients = AttentionInputs(model), AdapterGradients(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    generator = torch.Generator().manual_seed(3)
    for step in range(10):
        ids = torch.randint(3, 90, (4, 12), generator=generator)
        ids[:, 1::2] = ids[:, ::2]
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    inputs.close()
    gradients.close()
    print(f"loss {loss.item():.3f}")
    for index, count in inputs.counts.items():
        print(f"layer {index}: {count} vectors, mean norm {inputs.sums[index] / count:.3f}")
    print(f"adapter tensors with a gradient: {sum(peak > 0 for peak in gradients.peaks.values())}")


if __name__ == "__main__":
    main()
