"""Collects input ranges of the attention and MLP blocks for 8-bit activations."""
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)


def build_model():
    config = Qwen2Config(vocab_size=64, hidden_size=32, intermediate_size=64,
                         num_hidden_layers=3, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64)
    return Qwen2ForCausalLM(config).eval()


class RangeObserver:
    def __init__(self, model):
        self.peak = {}
        self.handles = []
        for index, layer in enumerate(model.model.layers):
            for part in ("self_attn", "mlp"):
                name = f"layers.{index}.{part}"
                self.peak[name] = torch.zeros(())
                block = getattr(layer, part)
                self.handles.append(block.register_forward_pre_hook(self.observe(name)))

    def observe(self, name):
        def hook(module, args):
            for value in args:
                if torch.is_tensor(value) and value.is_floating_point():
                    self.peak[name] = torch.maximum(self.peak[name], value.abs().max())
        return hook

    def remove(self):
        for handle in self.handles:
            handle.remove()

    def scales(self):
        return {name: (peak / 127).clamp(min=1e-5) for name, peak in self.peak.items()}


@torch.no_grad()
def calibrate(model, batches):
    observer = RangeObserver(model)
    for tokens in batches:
        model(input_ids=tokens)
    observer.remove()
    return observer.scales()


def quantize(x, scale):
    return (x / scale).round().clamp(-128, 127) * scale


@torch.no_grad()
def main():
    model = build_model()
    batches = [torch.randint(0, 64, (4, 20)) for _ in range(5)]
    scales = calibrate(model, batches)
    for name, scale in scales.items():
        print(f"{name}: scale {scale.item():.5f}")

    layer = model.model.layers[0]
    states = layer.input_layernorm(model.model.embed_tokens(batches[0]))
    error = quantize(states, scales["layers.0.self_attn"]) - states
    relative = error.norm() / states.norm()
    print(f"relative quantization error of the first attention input: {relative:.3f}")


if __name__ == "__main__":
    main()
