"""Self-distillation of a ViT: the teacher is a moving average of the student, kept up to date by an optimizer hook."""
import copy

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import ViTConfig, ViTModel

torch.manual_seed(0)
torch.set_num_threads(1)

IMAGE = 16
PATCH = 4


def build_vit():
    config = ViTConfig(
        image_size=IMAGE,
        patch_size=PATCH,
        num_channels=1,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
    )
    return ViTModel(config, add_pooling_layer=False)


class Tap:
    """Hands out the outputs of some layers once; nothing of a finished step stays behind."""

    def __init__(self, model, layers):
        self.outputs = []
        self.handles = [model.layers[i].register_forward_hook(self.collect) for i in layers]

    def collect(self, module, args, output):
        self.outputs.append(output)

    def take(self):
        outputs, self.outputs = self.outputs, []
        return outputs

    def close(self):
        for handle in self.handles:
            handle.remove()


class MovingAverage:
    def __init__(self, student, teacher, momentum):
        self.student, self.teacher, self.momentum = student, teacher, momentum
        self.count = 0

    @torch.no_grad()
    def __call__(self, optimizer, args, kwargs):
        for target, source in zip(self.teacher.parameters(), self.student.parameters()):
            target.lerp_(source, 1 - self.momentum)
        self.count += 1


def main(steps=24, accumulate=2):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    student = build_vit().train()
    teacher = copy.deepcopy(student).requires_grad_(False).eval()
    start = copy.deepcopy(teacher.state_dict())

    raw_optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    average = MovingAverage(student, teacher, momentum=0.9)
    handle = raw_optimizer.register_step_post_hook(average)
    student, optimizer = accelerator.prepare(student, raw_optimizer)
    student_tap, teacher_tap = Tap(student, (1, 2)), Tap(teacher, (1, 2))

    generator = torch.Generator().manual_seed(1)
    total = 0.0
    for step in range(1, steps + 1):
        images = torch.rand(16, 1, IMAGE, IMAGE, generator=generator)
        noisy = images + 0.2 * torch.randn(images.shape, generator=generator)
        with accelerator.accumulate(student):
            with torch.no_grad():
                teacher(pixel_values=images)
            student(pixel_values=noisy)
            pairs = zip(student_tap.take(), teacher_tap.take())
            loss = sum(F.mse_loss(s, F.layer_norm(t, t.shape[-1:])) for s, t in pairs)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        total += loss.item()
        if step % 8 == 0:
            print(f"step {step}: loss {total / 8:.4f}")
            total = 0.0

    handle.remove()
    student_tap.close()
    teacher_tap.close()
    moved = sum((value - start[name]).abs().sum().item() for name, value in teacher.state_dict().items())
    print(f"teacher updates {average.count}, distance moved {moved:.3f}")
    print(f"student outputs waiting: {len(student_tap.outputs)}")


if __name__ == "__main__":
    main()
