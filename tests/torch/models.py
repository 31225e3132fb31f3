"""Small networks, each with what it is called with: (module, args, kwargs). The module returns the loss."""

import torch
from torch import nn
from torch.nn import functional


class Loss(nn.Module):
    """A network that is given its targets, and returns the loss."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, y):
        return functional.cross_entropy(self.net(x), y)


def labelled(net, *shape, classes=5):
    return Loss(net), (torch.randn(shape), torch.randint(classes, shape[:1])), {}


def mlp():
    layers = [part for _ in range(4) for part in (nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.5))]
    return labelled(nn.Sequential(*layers, nn.Linear(32, 5)), 512, 32)


def conv():
    def block(a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True))

    net = nn.Sequential(block(3, 8), block(8, 8), nn.MaxPool2d(2), block(8, 16), nn.Flatten(), nn.Linear(16 * 16, 5))
    return labelled(net, 16, 3, 8, 8)


class Shared(nn.Module):
    """One normalisation called twice, and tied weights."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 12)
        self.second = nn.Linear(12, 12)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(12)

    def forward(self, x):
        x = torch.tanh(self.norm(self.first(x)))
        x = torch.tanh(self.norm(self.second(x)))
        return (x * self.norm.running_mean).square().mean()


def shared():
    return Shared(), (torch.randn(256, 12),), {}


class Named(nn.Module):
    """Takes keywords, returns a dict, draws noise twice, and has an output that is no loss."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(16, 24)
        self.two = nn.Linear(24, 4)

    def forward(self, *, x, labels, scale=1.0):
        hidden = torch.relu(self.one(x))
        noisy = hidden + 0.1 * torch.randn_like(hidden) + 0.1 * torch.randn_like(hidden)
        parts = noisy.split(12, dim=1)
        logits = self.two(torch.cat([torch.sin(parts[0]), parts[1] * torch.rand(12)], dim=1)) * scale
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


def named():
    return Named(), (), {"x": torch.randn(256, 16), "labels": torch.randint(4, (256,)), "scale": 0.5}


class Attention(nn.Module):
    """Fused attention, without dropout."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(16, 48)

    def forward(self, x):
        heads = self.project(x).unflatten(-1, (3, 2, 8)).movedim(2, 0).transpose(2, 3)
        return functional.scaled_dot_product_attention(*heads.unbind()).square().mean()


def attention():
    return Attention(), (torch.randn(4, 24, 16),), {}


class UNet(nn.Module):
    def __init__(self, width=6):
        super().__init__()

        def double(a, b):
            return nn.Sequential(
                *(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True)),
                *(nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True)),
            )

        self.down = nn.ModuleList([double(3, width), double(width, 2 * width)])
        self.middle = double(2 * width, 4 * width)
        self.up = nn.ModuleList(
            [nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)]
        )
        self.join = nn.ModuleList([double(4 * width, 2 * width), double(2 * width, width)])
        self.last = nn.Conv2d(width, 1, 1)

    def forward(self, x, y):
        passed = []
        for part in self.down:
            x = part(x)
            passed.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.middle(x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), passed.pop()], dim=1))
        return functional.binary_cross_entropy_with_logits(self.last(x), y)


def unet():
    return UNet(), (torch.randn(2, 3, 16, 16), torch.rand(2, 1, 16, 16)), {}


class Half(nn.Module):
    """Under bf16 autocast."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 5)
        )

    def forward(self, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = self.net(x)
        return functional.cross_entropy(out.float(), y)


def half():
    return Half(), (torch.randn(256, 16), torch.randint(5, (256,))), {}


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=97, n_positions=32, n_embd=32, n_layer=3, n_head=4, use_cache=False)
    ids = torch.randint(97, (4, 32))
    return GPT2LMHeadModel(config), (), {"input_ids": ids, "labels": ids}


def bert(attention="sdpa"):
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=97, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=32, num_labels=3, attn_implementation=attention,
    )  # fmt: skip
    given = {"input_ids": torch.randint(97, (8, 32)), "attention_mask": torch.ones(8, 32, dtype=torch.long)}
    return BertForSequenceClassification(config), (), {**given, "labels": torch.randint(3, (8,))}


def bert_eager():
    return bert("eager")


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8,
        num_labels=3, problem_type="single_label_classification",
    )  # fmt: skip
    return (
        ViTForImageClassification(config),
        (),
        {"pixel_values": torch.randn(8, 3, 32, 32), "labels": torch.randint(3, (8,))},
    )


class Bottleneck(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        kept = [nn.Conv2d(a, b, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
        spread = [nn.Conv2d(b, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
        self.path = nn.Sequential(*kept, *spread, nn.Conv2d(b, 4 * b, 1, bias=False), nn.BatchNorm2d(4 * b))
        same = a == 4 * b and stride == 1
        short = [] if same else [nn.Conv2d(a, 4 * b, 1, stride, bias=False), nn.BatchNorm2d(4 * b)]
        self.short = nn.Sequential(*short)

    def forward(self, x):
        return functional.relu(self.path(x) + self.short(x), inplace=True)


def resnet50(batch=8, pixels=224, depths=(3, 4, 6, 3), width=64, classes=1000):
    layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    channels = width
    for stage, depth in enumerate(depths):
        for index in range(depth):
            inner = width << stage
            layers.append(Bottleneck(channels, inner, 2 if stage and not index else 1))
            channels = 4 * inner
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    return labelled(nn.Sequential(*layers), batch, 3, pixels, pixels, classes=classes)


def vgg19(batch=8, pixels=224, classes=1000):
    layers, channels = [], 3
    for width, depth in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(depth):
            layers += [nn.Conv2d(channels, width, 3, 1, 1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2, 2))
    layers += [nn.Flatten(), nn.Linear(channels * (pixels // 32) ** 2, 4096), nn.ReLU(inplace=True), nn.Dropout()]
    layers += [nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, classes)]
    return labelled(nn.Sequential(*layers), batch, 3, pixels, pixels, classes=classes)


class Dense(nn.Module):
    """A layer of a densely connected block, which concatenates its output to its input."""

    def __init__(self, channels, growth):
        super().__init__()
        narrow = [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.Conv2d(channels, 4 * growth, 1, bias=False)]
        wide = [nn.BatchNorm2d(4 * growth), nn.ReLU(inplace=True), nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False)]
        self.path = nn.Sequential(*narrow, *wide)

    def forward(self, x):
        return torch.cat([x, self.path(x)], 1)


def densenet121(batch=8, pixels=224, depths=(6, 12, 24, 16), growth=32, classes=1000):
    channels = 2 * growth
    layers = [nn.Conv2d(3, channels, 7, 2, 3, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    for stage, depth in enumerate(depths):
        if stage:
            layers += [
                nn.BatchNorm2d(channels),
                nn.ReLU(inplace=True),
                nn.Conv2d(channels, channels // 2, 1, bias=False),
            ]
            layers.append(nn.AvgPool2d(2, 2))
            channels //= 2
        for _ in range(depth):
            layers.append(Dense(channels, growth))
            channels += growth
    layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return labelled(nn.Sequential(*layers, nn.Linear(channels, classes)), batch, 3, pixels, pixels, classes=classes)


class NoDropout(nn.Identity):
    p = 0.0


class LossOnly(nn.Module):
    """A model of transformers without dropout; it returns only the loss, so that the logits can be freed."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        for part in model.modules():
            for name, child in part.named_children():
                if isinstance(child, nn.Dropout):
                    setattr(part, name, NoDropout())  # PyTorch's compiler makes a copy of dropout by 0

    def forward(self, ids, labels=None):
        return self.model(input_ids=ids, labels=ids if labels is None else labels).loss


def bert_base(batch=16, length=512, **config):
    from transformers import BertConfig, BertForSequenceClassification

    made = BertConfig(num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **config)
    given = torch.randint(made.vocab_size, (batch, length)), torch.randint(3, (batch,))
    return LossOnly(BertForSequenceClassification(made)), given, {}


def gpt2_small(batch=8, length=1024, **config):
    from transformers import GPT2Config, GPT2LMHeadModel

    without = {"use_cache": False, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    made = GPT2Config(**without, **config)
    return LossOnly(GPT2LMHeadModel(made)), (torch.randint(made.vocab_size, (batch, length)),), {}


class Net(nn.Module):
    """As small as can be."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, x):
        return torch.tanh(self.two(torch.relu(self.one(x)))).mean()


NETWORKS = (mlp, conv, shared, named, unet, half, gpt2, bert, bert_eager, vit)


def make(factory, seed=0):
    """Return the same network every time, in training."""
    torch.manual_seed(seed)
    module, args, kwargs = factory()
    return module.train(), args, kwargs


def loss_of(returned):
    return returned if isinstance(returned, torch.Tensor) else returned["loss"]
