"""Run a plan in the transformers Trainer, and record the gradients of a small GPT-2 as the optimizer receives them.

The callback attaches the plan after the Trainer has created its optimizer and wrapped the model. At `grad_final`, the
Trainer has accumulated its micro-batches and clipped the gradients (`max_grad_norm`), so the recorded gradients are
those that change the weights. Run `pip install "tenterhook[transformers,record]"` first.

    python examples/transformers_example.py
"""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainingArguments, logging

import tenterhook as th
from tenterhook.adapters.transformers import RigCallback

torch.set_num_threads(1)
logging.set_verbosity_error()
STEPS, LIMIT = 40, 0.4

# Every line counts up from a random number, modulo 32.
torch.manual_seed(0)
lines = (torch.randint(32, (256, 1)) + torch.arange(16)) % 32
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
)
plan = th.Plan([
    th.Hook("grads", on="**", at="grad_final", do=th.stats()),
    th.Hook("moved", on="transformer.h.**.weight", at="update", do=th.ratio(), when=th.When(every=10)),
])  # fmt: skip

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        f"{folder}/trainer", max_steps=STEPS, per_device_train_batch_size=8, gradient_accumulation_steps=2,
        learning_rate=1e-2, max_grad_norm=LIMIT, seed=0, report_to="none", use_cpu=True, disable_tqdm=True,
        logging_steps=10, save_strategy="no",
    )  # fmt: skip
    trainer = Trainer(
        model,
        arguments,
        train_dataset=[{"input_ids": line, "labels": line} for line in lines],
        callbacks=[RigCallback(plan, sinks=th.Store(f"{folder}/run"))],
    )
    trainer.remove_callback(PrinterCallback)  # this script prints its own summary
    trainer.train()
    run = th.open_run(f"{folder}/run")
    total = run.sql(
        "select step, sqrt(sum(value * value)) from rows where hook = 'grads' and name = 'norm' "
        "group by step order by step"
    ).fetchall()
    curve = run.curve("grads", "transformer.wte.weight", "norm")
    moved = run.frame("moved", name="ratio")

logged = [entry for entry in trainer.state.log_history if "grad_norm" in entry]
for entry in logged:
    step = entry["step"] - 1  # the Trainer counts from one
    print(
        f"step {step:2}: loss {float(entry['loss']):.2f}, gradient norm: logged {float(entry['grad_norm']):.2f}, "
        f"at grad_final {total[step][1]:.2f}, of the embedding {curve.values[step]:.2f}"
    )
most = moved.loc[moved.value.idxmax()]
print(f"the largest update in the blocks: {most.target} by {most.value:.1%} of its norm in step {most.step}")

assert [step for step, _ in total] == curve.steps == list(range(STEPS))
assert all(norm < LIMIT + 1e-4 for _, norm in total), "the Trainer clips before grad_final"
assert any(float(entry["grad_norm"]) > 2 * LIMIT for entry in logged)
