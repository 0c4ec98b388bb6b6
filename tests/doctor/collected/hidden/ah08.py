"""One-shot shape probe: each hook reports its first call and then takes itself off."""
import torch
from transformers import T5Config, T5ForConditionalGeneration

torch.manual_seed(47)
torch.set_num_threads(1)


def describe(value):
    if torch.is_tensor(value):
        return "x".join(map(str, value.shape))
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(describe(v) for v in value) + ")"
    if value is None:
        return "-"
    return type(value).__name__


def probe_shapes(model, suffixes):
    """Returns {module name: shape of its first output}; filled by the next forward pass."""
    shapes = {}

    def install(name, module):
        def once(mod, args, output):
            shapes[name] = describe(output)
            handle.remove()

        handle = module.register_forward_hook(once)

    for name, module in model.named_modules():
        if name.endswith(suffixes):
            install(name, module)
    return shapes


def live_hooks(model):
    return sum(len(m._forward_hooks) for m in model.modules())


def main():
    model = T5ForConditionalGeneration(T5Config(
        vocab_size=50, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=None)).eval()
    shapes = probe_shapes(model, ("SelfAttention", "EncDecAttention", "DenseReluDense"))
    print("hooks waiting:", live_hooks(model))

    src = torch.randint(2, 50, (2, 7))
    with torch.no_grad():
        # many decoder calls follow; only the first one is described
        out = model.generate(input_ids=src, max_new_tokens=5, do_sample=False)
    for name in sorted(shapes):
        print(f"{name:<42} {shapes[name]}")
    print("generated", tuple(out.shape), "hooks left:", live_hooks(model))


if __name__ == "__main__":
    main()
