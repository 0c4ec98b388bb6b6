"""Record the scale of the attention inputs in a small Llama for post-training quantisation."""
import functools

import torch
from transformers import LlamaConfig, LlamaForCausalLM


class Calibration:
    """Largest absolute input value of each attention module."""

    def __init__(self):
        self.ranges = {}
        self.calls = {}

    def observe(self, name, module, args):
        self.calls[name] = self.calls.get(name, 0) + 1
        for value in args:
            if torch.is_tensor(value) and value.is_floating_point():
                peak = value.detach().abs().max().item()
                self.ranges[name] = max(peak, self.ranges.get(name, 0.0))

    def scale(self, name, bits=8):
        return self.ranges.get(name, 1.0) / (2 ** (bits - 1) - 1)


def calibrate(model, batches):
    calibration = Calibration()
    handles = []
    for name, module in model.named_modules():
        if name.endswith("self_attn"):
            hook = functools.partial(calibration.observe, name)
            handles.append(module.register_forward_pre_hook(hook))
    with torch.no_grad():
        for ids in batches:
            model(input_ids=ids, use_cache=False)
    for handle in handles:
        handle.remove()
    return calibration


def main():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
        bos_token_id=0, eos_token_id=1, pad_token_id=2,
    )
    model = LlamaForCausalLM(config).eval()
    batches = [torch.randint(64, (2, 10)) for _ in range(3)]
    calibration = calibrate(model, batches)
    print("observed calls", calibration.calls)
    print("observed ranges", calibration.ranges)
    for name in calibration.calls:
        print(f"{name}: quantisation scale {calibration.scale(name):.6f}")


if __name__ == "__main__":
    main()
