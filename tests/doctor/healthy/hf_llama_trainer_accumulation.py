"""A tiny Llama with the Trainer: accumulation, gradient checkpointing, clipping; a callback puts the hooks on."""

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

torch.manual_seed(0)

config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    use_cache=False,
)
model = LlamaForCausalLM(config)
mlp_norms, final_norms = [], []


class GradientLogger(TrainerCallback):
    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.handles = [layer.mlp.register_forward_hook(self.log_mlp) for layer in model.model.layers]

    def log_mlp(self, module, args, output):
        mlp_norms.append(output.detach().norm().item())

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        final_norms.append(model.lm_head.weight.grad.norm().item())

    def on_train_end(self, args, state, control, **kwargs):
        for handle in self.handles:
            handle.remove()


dataset = [{"input_ids": row, "labels": row} for row in torch.randint(64, (32, 12))]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=3,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_grad_norm=1.0,
        gradient_checkpointing=True,
        lr_scheduler_type="cosine",
        warmup_steps=1,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=dataset, callbacks=[GradientLogger()])
    trainer.train()
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
result = [losses, mlp_norms, final_norms, [p.detach().clone() for p in model.parameters()]]
