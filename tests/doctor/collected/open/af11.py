"""HF Trainer run in which the token embeddings learn with half the usual gradient."""
import tempfile
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

torch.set_num_threads(1)


class Patterns(Dataset):
    """Arithmetic sequences; the model has to continue them."""

    def __len__(self):
        return 24

    def __getitem__(self, i):
        ids = (torch.arange(10) * (1 + i % 3) + i) % 40
        return {"input_ids": ids, "labels": ids.clone()}


class SlowEmbeddings(TrainerCallback):
    def __init__(self, factor):
        self.factor = factor
        self.sizes = []

    def on_epoch_begin(self, args, state, control, model=None, **kwargs):
        # make sure that the factor is in place when the epoch starts
        weight = model.transformer.wte.weight
        weight.register_hook(lambda grad: grad * self.factor)
        self.current = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        emb = model.transformer.wte.weight.grad.norm()
        body = model.transformer.h[0].mlp.c_fc.weight.grad.norm()
        self.current.append((emb / body).item())

    def on_epoch_end(self, args, state, control, **kwargs):
        self.sizes.append(sum(self.current) / len(self.current))


def main():
    torch.manual_seed(10)
    cfg = GPT2Config(vocab_size=40, n_positions=16, n_embd=24, n_layer=2, n_head=2,
                     bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0,
                     attn_pdrop=0.0)
    model = GPT2LMHeadModel(cfg)
    slow = SlowEmbeddings(0.5)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(), num_train_epochs=5, per_device_train_batch_size=8,
        learning_rate=1e-4, lr_scheduler_type="constant", max_grad_norm=0.0, seed=10,
        save_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True)
    trainer = Trainer(model=model, args=args, train_dataset=Patterns(), callbacks=[slow])
    trainer.remove_callback(PrinterCallback)
    result = trainer.train()

    print(f"training loss {result.training_loss:.4f} after {result.global_step} steps")
    for epoch, size in enumerate(slow.sizes):
        print(f"epoch {epoch}: embedding gradient / mlp gradient = {size:.4f}")
    change = slow.sizes[-1] / slow.sizes[0]
    print(f"share of the embeddings, last epoch against first: {change:.2f}")


if __name__ == "__main__":
    main()
