# Class activation maps for a handful of test images, notebook style.
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(17)


class ShapeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.conv3 = nn.Conv2d(16, 16, 3, padding=1)
        self.fc = nn.Linear(16, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.conv3(x))
        return self.fc(x.mean(dim=(2, 3)))


def make_shapes(n, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (n,), generator=generator)
    images = 0.2 * torch.randn(n, 1, 24, 24, generator=generator)
    corners = torch.randint(2, 12, (n, 2), generator=generator)
    for i, (label, (r, c)) in enumerate(zip(labels.tolist(), corners.tolist())):
        if label == 0:
            images[i, 0, r:r + 8, c:c + 8] += 1.0
        elif label == 1:
            images[i, 0, r:r + 8, c + 3:c + 5] += 1.0
        else:
            images[i, 0, r + 3:r + 5, c:c + 8] += 1.0
    return images, labels


train_x, train_y = make_shapes(240, seed=1)
model = ShapeNet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(8):
    for chunk in torch.randperm(len(train_x)).split(48):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(train_x[chunk]), train_y[chunk])
        loss.backward()
        optimizer.step()
print(f"training loss {loss.item():.3f}")

model.eval()
feature_maps = []
gradients = []


def save_features(module, inputs, output):
    feature_maps.append(output.detach())


def save_gradients(module, grad_input, grad_output):
    gradients.append(grad_output[0].detach())


def explain(image, layer):
    forward_handle = layer.register_forward_hook(save_features)
    backward_handle = layer.register_full_backward_hook(save_gradients)
    scores = model(image)
    winner = scores.argmax(dim=1).item()
    model.zero_grad()
    scores[0, winner].backward()
    return winner


test_x, test_y = make_shapes(5, seed=2)
for i in range(len(test_x)):
    predicted = explain(test_x[i:i + 1], model.conv3)
    print(f"image {i}: label {test_y[i].item()}, predicted {predicted}")

maps = torch.cat(feature_maps)
weights = torch.cat(gradients).mean(dim=(2, 3), keepdim=True)
cams = F.relu((weights * maps).sum(dim=1))
print(f"class activation maps: {len(cams)} for {len(test_x)} images")
for i, cam in enumerate(cams):
    print(f"  map {i}: peak {cam.max().item():.4f} at {divmod(cam.argmax().item(), cam.shape[1])}")
print(f"channel importance over the test set: {weights.abs().mean().item():.5f}")
