"""Train the line recogniser: a small TrOCR with one token a character, from random weights or warm ones.

A ViT encoder (three layers, width 96) sees a line as 64 columns of 32x5 pixels; a two-layer TrOCR decoder
spells the text. The loss is the decoder's cross-entropy plus half a CTC loss on the encoder's columns, which
teaches the encoder to tell letters apart before the decoder looks at it: from random weights the decoder
ignores the image for some 1200 steps and then learns quickly. The CTC head is not saved.

    python train_trocr.py --data work/lines.npz --out work/trocr --steps 5000
"""

import argparse
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from line_crops import LINE_HEIGHT, LINE_WIDTH
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from torch import nn
from torch.nn import functional
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    TrOCRConfig,
    TrOCRProcessor,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTImageProcessor,
)
from vocabulary import ALPHABET

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "demo"))
from cer import edit_distance

PAD, START, END, UNKNOWN = range(4)
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")
WIDTH, ENCODER_LAYERS, DECODER_LAYERS, HEADS = 96, 3, 2, 4
PATCH_WIDTH = 5
COLUMNS = LINE_WIDTH // PATCH_WIDTH
MAX_TOKENS = 60
CTC_WEIGHT = 0.5
WARM_UP = 0.06
"""Share of the steps in which the learning rate rises."""


def make_processor() -> TrOCRProcessor:
    """Build the processor: images to (3, 32, 320) in -1..1, text to a token a character and an end token."""
    vocabulary = {token: index for index, token in enumerate((*SPECIAL_TOKENS, *ALPHABET))}
    spelling = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    spelling.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    spelling.decoder = decoders.Fuse()
    spelling.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", END)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=spelling,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )
    images = ViTImageProcessor(
        size={"height": LINE_HEIGHT, "width": LINE_WIDTH},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
        resample=2,
    )
    return TrOCRProcessor(image_processor=images, tokenizer=tokenizer)


def make_model(vocabulary_size: int) -> VisionEncoderDecoderModel:
    """Build the model with random weights, half a million parameters."""
    encoder = ViTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=ENCODER_LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=2 * WIDTH,
        image_size=[LINE_HEIGHT, LINE_WIDTH],
        patch_size=[LINE_HEIGHT, PATCH_WIDTH],
        pooler_output_size=8,
    )
    decoder = TrOCRConfig(
        vocab_size=vocabulary_size,
        d_model=WIDTH,
        decoder_layers=DECODER_LAYERS,
        decoder_attention_heads=HEADS,
        decoder_ffn_dim=2 * WIDTH,
        max_position_embeddings=64,
        cross_attention_hidden_size=WIDTH,
        is_decoder=True,
        add_cross_attention=True,
        use_learned_position_embeddings=True,
        scale_embedding=False,
        dropout=0.05,
        decoder_start_token_id=START,
        bos_token_id=START,
        pad_token_id=PAD,
        eos_token_id=END,
    )
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        encoder, decoder, decoder_start_token_id=START, pad_token_id=PAD, eos_token_id=END
    )
    model = VisionEncoderDecoderModel(config=config)
    model.generation_config = GenerationConfig(
        decoder_start_token_id=START,
        bos_token_id=START,
        pad_token_id=PAD,
        eos_token_id=END,
        max_length=MAX_TOKENS,
        num_beams=1,
        length_penalty=1.0,
    )
    return model


def warm_start(model: VisionEncoderDecoderModel, processor: TrOCRProcessor, folder: Path) -> int:
    """Copy the weights of an earlier model of this shape; return how many of our tokens it knew.

    Tensors with a row for each token are copied token by token, so that the alphabet may have changed.
    """
    earlier = VisionEncoderDecoderModel.from_pretrained(folder).state_dict()
    old_rows = TrOCRProcessor.from_pretrained(folder).tokenizer.get_vocab()
    shared = [(row, old_rows[token]) for token, row in processor.tokenizer.get_vocab().items() if token in old_rows]
    ours, theirs = (torch.tensor(rows) for rows in zip(*shared, strict=True))
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.shape == earlier[name].shape:
                tensor.copy_(earlier[name])
            else:
                tensor[ours] = earlier[name][theirs]
    return len(shared)


def to_pixels(crops: np.ndarray) -> torch.Tensor:
    """Turn uint8 crops (n, 32, 320, 3) into the model's input (n, 3, 32, 320) in -1..1."""
    return (torch.from_numpy(crops).float() / 127.5 - 1).permute(0, 3, 1, 2).contiguous()


def augment(pixels: torch.Tensor) -> torch.Tensor:
    """Vary contrast and brightness by image, and shift the batch by a few pixels."""
    size = (len(pixels), 1, 1, 1)
    pixels = pixels * (1 + 0.15 * torch.randn(size)) + 0.1 * torch.randn(size)
    shift = (int(torch.randint(-1, 2, ())), int(torch.randint(-3, 4, ())))
    return torch.roll(pixels, shift, dims=(2, 3))


def batch_loss(
    model: VisionEncoderDecoderModel, ctc_head: nn.Linear, pixels: torch.Tensor, spelled: list[list[int]]
) -> torch.Tensor:
    """Return cross-entropy plus `CTC_WEIGHT` times CTC for one batch; `spelled` ends each text with `END`."""
    targets = torch.full((len(spelled), max(map(len, spelled))), -100)
    for row, tokens in enumerate(spelled):
        targets[row, : len(tokens)] = torch.tensor(tokens)
    start = torch.full((len(spelled), 1), START)
    inputs = torch.cat([start, targets[:, :-1].clamp(min=PAD)], dim=1)
    columns = model.encoder(pixel_values=pixels).last_hidden_state
    logits = model.decoder(input_ids=inputs, encoder_hidden_states=columns).logits
    loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, label_smoothing=0.05)
    scores = ctc_head(columns[:, 1:]).log_softmax(-1).transpose(0, 1)
    ctc = functional.ctc_loss(
        scores,
        torch.tensor([token for tokens in spelled for token in tokens[:-1]]),
        torch.full((len(spelled),), COLUMNS),
        torch.tensor([len(tokens) - 1 for tokens in spelled]),
        blank=PAD,
        zero_infinity=True,
    )
    return loss + CTC_WEIGHT * ctc


def learning_rate(progress: float, peak: float) -> float:
    """Rise to `peak` in the first `WARM_UP` of the steps, then fall along a cosine to a hundredth of it."""
    if progress < WARM_UP:
        return peak * progress / WARM_UP
    return peak * (0.01 + 0.495 * (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP))))


def evaluate(model: VisionEncoderDecoderModel, processor: TrOCRProcessor, crops: np.ndarray, texts: list[str]) -> float:
    """Return the character error rate of greedy decoding over the held-out crops."""
    model.eval()
    read: list[str] = []
    with torch.no_grad():
        for first in range(0, len(crops), 100):
            tokens = model.generate(to_pixels(crops[first : first + 100]), num_beams=1)
            read += processor.batch_decode(tokens, skip_special_tokens=True)
    model.train()
    edits = sum(edit_distance(text, got) for text, got in zip(texts, read, strict=True))
    return edits / sum(map(len, texts))


def train(args: argparse.Namespace) -> None:
    """Run the training and write model and processor to `args.out` every `args.report` steps."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    order_rng = np.random.default_rng(args.seed)
    processor = make_processor()
    model = make_model(len(processor.tokenizer))
    if args.warm:
        known = warm_start(model, processor, args.warm)
        print(f"warm start: {known} of {len(processor.tokenizer)} tokens known")
    data = np.load(args.data)
    crops, held_out = data["crops"], data["held_out_crops"]
    spelled = [processor.tokenizer(str(text)).input_ids for text in data["texts"]]
    held_out_texts = [str(text) for text in data["held_out_texts"]]
    ctc_head = nn.Linear(WIDTH, len(processor.tokenizer))
    weights = [*model.parameters(), *ctc_head.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=args.peak, weight_decay=0.01, betas=(0.9, 0.98))
    order = np.empty(0, int)
    started_at = time.monotonic()
    model.train()
    for step in range(1, args.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step / args.steps, args.peak)
        if len(order) < args.batch:
            order = order_rng.permutation(len(crops))
        batch, order = order[: args.batch], order[args.batch :]
        loss = batch_loss(model, ctc_head, augment(to_pixels(crops[batch])), [spelled[index] for index in batch])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.3f} {time.monotonic() - started_at:.0f} s", flush=True)
        if step % args.report == 0 or step == args.steps:
            error = evaluate(model, processor, held_out, held_out_texts)
            print(f"step {step} held-out CER {error:.4f}", flush=True)
            model.save_pretrained(args.out)
            processor.save_pretrained(args.out)


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("work/lines.npz"))
    parser.add_argument("--out", type=Path, default=Path("work/trocr"))
    parser.add_argument("--warm", type=Path, help="folder of an earlier model of this shape to start from")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--peak", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--report", type=int, default=500, help="steps between two evaluations and saves")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
