"""Steering as a context manager: works for tensor and tuple outputs, leaves no trace behind."""
from contextlib import contextmanager
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

torch.manual_seed(41)
torch.set_num_threads(1)


@contextmanager
def steering(block, vector):
    def hook(module, args, output):
        if isinstance(output, tuple):
            return (output[0] + vector, *output[1:])
        return output + vector

    handle = block.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@torch.no_grad()
def compare(name, model, block, inputs, vector):
    plain = F.log_softmax(model(**inputs).logits[:, -1], -1)
    with steering(block, vector):
        pushed = F.log_softmax(model(**inputs).logits[:, -1], -1)
    again = F.log_softmax(model(**inputs).logits[:, -1], -1)
    kl = (plain.exp() * (plain - pushed)).sum(-1)
    print(f"{name}: kl per prompt {[round(v, 5) for v in kl.tolist()]}, restored {torch.equal(plain, again)}")


def failing_run(model, block, inputs, vector):
    """An error in the middle must not leave the hook on the block."""
    try:
        with steering(block, vector):
            model(**inputs)
            raise KeyError("user pressed stop")
    except KeyError:
        pass
    return len(block._forward_hooks)


def main():
    vector = 3.0 * F.normalize(torch.randn(32), dim=0)
    gpt = GPT2LMHeadModel(GPT2Config(vocab_size=60, n_positions=32, n_embd=32, n_layer=2, n_head=4,
                                     bos_token_id=0, eos_token_id=None)).eval()
    ids = torch.randint(1, 60, (3, 7))
    compare("gpt2", gpt, gpt.transformer.h[0], {"input_ids": ids}, vector)

    t5 = T5ForConditionalGeneration(T5Config(
        vocab_size=60, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)).eval()
    inputs = {"input_ids": ids, "decoder_input_ids": ids[:, :4]}
    compare("t5", t5, t5.decoder.block[0], inputs, vector)
    print("hooks left after a failed run:", failing_run(gpt, gpt.transformer.h[0], {"input_ids": ids}, vector))


main()
