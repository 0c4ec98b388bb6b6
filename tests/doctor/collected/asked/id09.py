import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)


def build_model():
    torch.manual_seed(2)
    config = LlamaConfig(
        vocab_size=150,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return LlamaForCausalLM(config).eval()


class InputObserver:
    """Range of the activations that enter a module, for 8 bit quantization."""

    def __init__(self):
        self.tokens = 0
        self.peak = 0.0

    def __call__(self, module, args):
        for tensor in args:
            if torch.is_tensor(tensor) and tensor.is_floating_point():
                self.tokens += tensor.shape[0] * tensor.shape[1]
                self.peak = max(self.peak, tensor.abs().max().item())

    @property
    def scale(self):
        return self.peak / 127


class Calibrator:
    def __init__(self, model):
        self.model = model
        self.observers = {}
        self.handles = []

    def attach(self):
        for index, layer in enumerate(self.model.model.layers):
            observer = InputObserver()
            self.observers[f"layers.{index}.self_attn"] = observer
            self.handles.append(layer.self_attn.register_forward_pre_hook(observer))

    def detach(self):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()

    @torch.no_grad()
    def run(self, batches):
        self.attach()
        for input_ids in batches:
            self.model(input_ids=input_ids, use_cache=False)
        self.detach()
        return self.observers


def calibration_batches(count=4, batch_size=4, length=16):
    generator = torch.Generator().manual_seed(8)
    return [
        torch.randint(3, 150, (batch_size, length), generator=generator) for _ in range(count)
    ]


def main():
    model = build_model()
    batches = calibration_batches()
    observers = Calibrator(model).run(batches)
    expected = sum(b.numel() for b in batches)
    print(f"calibration set: {expected} tokens")
    for name, observer in observers.items():
        print(f"{name}: {observer.tokens} tokens, scale {observer.scale:.5f}")


if __name__ == "__main__":
    main()
