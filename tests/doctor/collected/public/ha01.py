"""Collect the input ranges of the attention and MLP blocks of a small Llama for int8 activation quantization."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB = 200
BITS = 8


class RangeObserver:
    def __init__(self):
        self.absmax = 0.0
        self.tokens = 0

    def update(self, x):
        self.absmax = max(self.absmax, x.detach().abs().max().item())
        self.tokens += x.shape[0] * x.shape[1]

    def scale(self):
        return self.absmax / (2 ** (BITS - 1) - 1)


class Calibrator:
    """Watches the hidden states that enter each block while calibration batches run through the model."""

    def __init__(self, model):
        self.observers = {}
        self.handles = []
        for idx, layer in enumerate(model.model.layers):
            self.watch(f"layers.{idx}.self_attn", layer.self_attn)
            self.watch(f"layers.{idx}.mlp", layer.mlp)

    def watch(self, name, module):
        observer = RangeObserver()

        def hook(module, args):
            for x in args:
                observer.update(x)

        self.observers[name] = observer
        self.handles.append(module.register_forward_pre_hook(hook))

    def remove(self):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


def build_model():
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        use_cache=False,
    )
    return LlamaForCausalLM(config).eval()


def calibration_batches(n_batches=6, batch_size=4, length=20):
    generator = torch.Generator().manual_seed(11)
    for _ in range(n_batches):
        yield torch.randint(0, VOCAB, (batch_size, length), generator=generator)


@torch.no_grad()
def calibrate(model):
    calibrator = Calibrator(model)
    for input_ids in calibration_batches():
        model(input_ids=input_ids)
    calibrator.remove()
    return calibrator.observers


def report(observers):
    print(f"{'block':<22}{'tokens':>8}{'absmax':>10}{'scale':>12}")
    for name, observer in observers.items():
        print(f"{name:<22}{observer.tokens:>8}{observer.absmax:>10.4f}{observer.scale():>12.6f}")


def main():
    model = build_model()
    observers = calibrate(model)
    report(observers)
    attention_scales = [o.scale() for name, o in observers.items() if name.endswith("self_attn")]
    print(f"smallest attention scale: {min(attention_scales):.6f}")


if __name__ == "__main__":
    main()
