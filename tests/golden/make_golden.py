#!/usr/bin/env python3
"""Makes the golden files in data/: what numpy and ml_dtypes say the formats of docs/formats/ are.

Independent of the C++ code: rounding by numpy and ml_dtypes, layouts by reshape and transpose from docs/formats/block.md.

    python3 -m venv venv && venv/bin/pip install numpy ml_dtypes
    venv/bin/python tests/golden/make_golden.py            write the files
    venv/bin/python tests/golden/make_golden.py --check    compare with what is committed, exit 1 on a difference

Files (little endian):
  half_to_<format>.bin   for every f16 bit pattern 0..65535 the code: u8, or u16 for bf16. int8, int4_sym and int4_asym use the
                         f16 scale (and zero point) of RULER. NaN and infinities follow the policy of docs/formats.
  <fp8>_to_f32.bin       256 f32: the value of every code
  input.bin              f16 [2 sides][2 heads][32 tokens][64 channels]: the values of the blocks
  static.bin             f32: for K then V: per tensor [1], per head [2], per channel [2][64]
  blocks.txt             one line per block: K V granularity_K granularity_V heads head_dim block_size offset bytes
                         end_codes_K end_codes_V decoded_offset (-1 where none); '#' starts a comment
  blocks.bin             the encoded blocks; with per_token_head_u8 K is centered and what is not finite counts as 0
  decoded.bin            f32 [2 sides][heads][block_size][head_dim]: decoded values of some of them
"""
import argparse
import pathlib
import sys

import ml_dtypes
import numpy as np

DATA = pathlib.Path(__file__).parent / "data"
F32, F16 = np.float32, np.float16
MAX_HALF = F32(65504)
FP8 = {"fp8_e4m3": (ml_dtypes.float8_e4m3fn, F32(448)), "fp8_e5m2": (ml_dtypes.float8_e5m2, F32(57344))}
BITS = {"f32": 32, "f16": 16, "bf16": 16, "int8": 8, "fp8_e4m3": 8, "fp8_e5m2": 8, "int4_sym": 4, "int4_asym": 4}
STATIC = ("per_tensor", "per_head", "per_channel")
MAX_CODE = {"int8": F32(127), "int4_sym": F32(7), "fp8_e4m3": F32(448), "fp8_e5m2": F32(57344)}
# Narrow formats (docs/formats/narrow.md): magnitudes of the levels, levels per rms.
NARROW = {"int6": (list(range(1, 64, 2)), F32(23.4)), "int5": (list(range(1, 32, 2)), F32(11.6)),
          "int4": ([2, 5, 8, 11, 15, 19, 24, 31], F32(12.0)), "int3": ([3, 10, 19, 31], F32(14.1)), "int2": ([9, 31], F32(18.8))}
BITS |= {fmt: int(fmt[3:]) for fmt in NARROW}
# Scales of the rounding tables: not powers of two, so that products round.
RULER = {"int8": (F16(0.0292), F16(0)), "int4_sym": (F16(0.61), F16(0)), "int4_asym": (F16(0.37), F16(6.7))}


def quantize(fmt, x, scale, zero_point):
    """Codes of f32 x under f32 scale and zero point (arrays that broadcast), as the bits that are stored for V."""
    if fmt in ("f32", "f16", "bf16"):
        dtype = {"f32": F32, "f16": F16, "bf16": ml_dtypes.bfloat16}[fmt]
        with np.errstate(invalid="ignore"):  # NaN is among the input
            return x.astype(dtype).view(np.uint32 if fmt == "f32" else np.uint16)
    with np.errstate(all="ignore"):
        inverse = np.where(scale > 0, F32(1) / scale, F32(0)).astype(F32)
        p = (x * inverse).astype(F32)
        p = np.where(np.isnan(p), F32(0), p)
        if fmt in FP8:
            dtype, largest = FP8[fmt]
            return np.clip(p, -largest, largest).astype(dtype).view(np.uint8)
        if fmt == "int4_asym":
            return np.clip(np.rint((p + zero_point).astype(F32)), 0, 15).astype(np.uint8)
        code = np.clip(np.rint(p), -MAX_CODE[fmt], MAX_CODE[fmt]).astype(np.int8)
    return code.view(np.uint8) if fmt == "int8" else (code + 8).astype(np.uint8)


def dequantize(fmt, stored, scale, zero_point):
    if fmt in ("f32", "f16", "bf16"):
        return stored.view({"f32": F32, "f16": F16, "bf16": ml_dtypes.bfloat16}[fmt]).astype(F32)
    if fmt in FP8:
        value = stored.view(FP8[fmt][0]).astype(F32)
    elif fmt == "int8":
        value = stored.view(np.int8).astype(F32)
    elif fmt == "int4_sym":
        value = stored.astype(F32) - F32(8)
    else:
        value = stored.astype(F32) - zero_point
    return (np.broadcast_to(scale, value.shape) * value).astype(F32)


def end_codes(fmt, stored):
    if fmt == "int8":
        return int((np.abs(stored.view(np.int8).astype(int)) == 127).sum())
    if fmt == "int4_sym":
        return int((np.abs(stored.astype(int) - 8) == 7).sum())
    if fmt == "int4_asym":
        return int(((stored == 0) | (stored == 15)).sum())
    if fmt in FP8:
        return int((np.abs(stored.view(FP8[fmt][0]).astype(F32)) == FP8[fmt][1]).sum())
    return 0


def fit(fmt, x):
    """f16 scales and zero points of x [..., group]."""
    finite = np.isfinite(x)
    with np.errstate(all="ignore"):
        if fmt != "int4_asym":
            amax = np.where(finite, np.abs(x), F32(0)).max(-1)
            return np.minimum((amax / MAX_CODE[fmt]).astype(F32), MAX_HALF).astype(F16), None
        low = np.where(finite, x, F32(np.inf)).min(-1)
        high = np.where(finite, x, F32(-np.inf)).max(-1)
        none = ~finite.any(-1)
        low, high = np.where(none, F32(0), low), np.where(none, F32(0), high)
        span = (high - low).astype(F32)
        scale = np.where(span > 0, (span / F32(15)).astype(F32), np.abs(low))
        scale = np.minimum(scale, MAX_HALF).astype(F16)
        wide = scale.astype(F32)
        zero = np.clip(((F32(0) - low) / wide).astype(F32), -MAX_HALF, MAX_HALF)
        return scale, np.where(wide > 0, zero, F32(0)).astype(F16)


def lines(side, fmt, stored):
    """[tokens][channels] of stored codes -> bytes of the lines (block.md)."""
    tokens, channels = stored.shape
    e = 32 // BITS[fmt]
    if side == "K":
        if fmt == "int8":
            stored = (stored.view(np.int8).astype(int) + 128).astype(np.uint8)
        lanes = stored.reshape(tokens // 16, 16, channels // e, e).transpose(0, 2, 1, 3)
    else:
        lanes = stored.reshape(tokens // e, e, channels // 16, 16).transpose(0, 2, 3, 1)
    if BITS[fmt] == 4:
        lanes = lanes[..., :4] | (lanes[..., 4:] << 4)
    return np.ascontiguousarray(lanes).astype(lanes.dtype.newbyteorder("<")).tobytes()


def lane_sum(rows):
    """Sums over the last axis in eight partial sums, as docs/formats/narrow.md has it."""
    lanes = np.zeros((len(rows), 8), F32)
    for c in range(0, rows.shape[1], 8):
        lanes = (lanes + rows[:, c:c + 8]).astype(F32)
    four = (lanes[:, :4] + lanes[:, 4:]).astype(F32)
    two = (four[:, :2] + four[:, 2:]).astype(F32)
    return (two[:, 0] + two[:, 1]).astype(F32)


def nearest_level(fmt, p):
    """Index of the magnitude and its value for |p|; between two the smaller."""
    magnitudes = np.array(NARROW[fmt][0], F32)
    index = np.searchsorted((magnitudes[1:] + magnitudes[:-1]) / 2, np.abs(p), side="left")
    return index, magnitudes[index]


def inverse_of(scale):
    with np.errstate(all="ignore"):
        return np.where(scale > 0, F32(1) / scale, F32(0)).astype(F32)


def half_scale(code, bias):
    return np.clip(64 * code + bias, 0, 0x7BFF).astype(np.uint16).view(F16).astype(F32)


def fit_bytes(fmt, x):
    """Byte scales of x [tokens][channels]: codes, bias, scales as f32."""
    if fmt == "int8":
        ideal = (np.abs(x).max(1) / F32(127)).astype(F32)
    else:
        mean = (lane_sum((x * x).astype(F32)) / F32(x.shape[1])).astype(F32)
        ideal = (np.sqrt(mean) / NARROW[fmt][1]).astype(F32)
    bits = np.minimum(ideal, MAX_HALF).astype(F16).view(np.uint16).astype(int)
    bias = 64 * ((bits.max() + 32) // 64 - 247)
    code = np.clip((np.maximum(bits - bias, 0) + (63 if fmt == "int8" else 32)) // 64, 0, 255)
    if fmt != "int8":
        best = np.full(len(x), -1)
        least = np.zeros(len(x), F32)
        for step in range(-7, 8):
            tried = code + step
            scale = half_scale(np.clip(tried, 0, 255), bias)[:, None]
            _, level = nearest_level(fmt, (x * inverse_of(scale)).astype(F32))
            difference = (np.abs(x) - (scale * level).astype(F32)).astype(F32)
            error = lane_sum((difference * difference).astype(F32))
            better = (tried >= 0) & (tried <= 255) & ((best < 0) | (error < least))
            best, least = np.where(better, tried, best), np.where(better, error, least).astype(F32)
        code = np.where(ideal > 0, best, code)
    return code.astype(np.uint8), bias, half_scale(code, bias)


def quantize_narrow(fmt, x, scale):
    p = (x * inverse_of(scale)).astype(F32)
    index, _ = nearest_level(fmt, p)
    half = len(NARROW[fmt][0])
    return np.where(p < 0, half - 1 - index, half + index).astype(np.uint8)


def narrow_levels(fmt, codes):
    magnitudes = NARROW[fmt][0]
    return np.array([-m for m in reversed(magnitudes)] + magnitudes, F32)[codes]


def narrow_lines(side, fmt, codes):
    """[tokens][channels] of codes -> bytes of the units of lines (narrow.md)."""
    low_bits = 4 if BITS[fmt] >= 4 else 2
    high_bits = BITS[fmt] - low_bits
    planes = {0: 8 // low_bits, 1: 8, 2: 4}[high_bits]
    tokens, channels = codes.shape
    if side == "K":  # [groups of 16 tokens][units][plane][lane][4]
        lanes = codes.reshape(tokens // 16, 16, channels // (4 * planes), planes, 4).transpose(0, 2, 3, 1, 4)
    else:
        lanes = codes.reshape(tokens // (4 * planes), planes, 4, channels // 16, 16).transpose(0, 3, 1, 4, 2)
    low, high = lanes & ((1 << low_bits) - 1), lanes >> low_bits
    per_line = 8 // low_bits
    out = [sum(low[:, :, line * per_line + i] << (low_bits * i) for i in range(per_line)) for line in range(planes // per_line)]
    if high_bits:
        out.append(sum(high[:, :, plane] << (high_bits * plane) for plane in range(planes)))
    return np.stack(out, axis=2).astype(np.uint8).tobytes()


def center(x, bits):
    """Takes the mean of [tokens][channels] off; returns the rest, the mean, its bytes and its f16 scale."""
    mean = np.zeros(x.shape[1], F32)
    for row in x:
        mean = (mean + row).astype(F32)
    mean = (mean / F32(len(x))).astype(F32)
    largest = F32(127 if bits == 8 else 7)
    scale = np.minimum((np.abs(mean).max() / largest).astype(F32), MAX_HALF).astype(F16)
    code = np.clip(np.rint((mean * inverse_of(scale.astype(F32))).astype(F32)), -largest, largest)
    mean = (scale.astype(F32) * code.astype(F32)).astype(F32)
    code = code.astype(int)
    if bits == 8:
        stored = code.astype(np.int8).tobytes()
    else:
        eights = (code + 8).astype(np.uint8).reshape(-1, 2, 8)
        stored = (eights[:, 0] | eights[:, 1] << 4).tobytes()
    return (x - mean).astype(F32), mean, stored, scale


def encode_bytes_block(spec, x):
    """A block whose sides both have byte scales; K is centered."""
    block, decoded, ends = b"", ([], []), [0, 0]
    x = np.where(np.isfinite(x), x, F32(0)).astype(F32)
    for head in range(spec[4]):
        k, mean, mean_bytes, mean_scale = center(x[0, head], 8 if spec[0] == "int8" else 4)
        scale_bytes, biases, side_lines = b"", b"", b""
        for i, (side, fmt, values) in enumerate((("K", spec[0], k), ("V", spec[1], x[1, head]))):
            codes, bias, scale = fit_bytes(fmt, values)
            scale_bytes += codes.tobytes()
            biases += np.int16(bias).astype("<i2").tobytes()
            if fmt == "int8":
                stored = quantize(fmt, values, scale[:, None], F32(0))
                side_lines += lines(side, fmt, stored)
                value = dequantize(fmt, stored, scale[:, None], F32(0))
                ends[i] += end_codes(fmt, stored)
            else:
                stored = quantize_narrow(fmt, values, scale[:, None])
                side_lines += narrow_lines(side, fmt, stored)
                value = (scale[:, None] * narrow_levels(fmt, stored)).astype(F32)
                ends[i] += int(((stored == 0) | (stored == (1 << BITS[fmt]) - 1)).sum())
            decoded[i].append((value + mean).astype(F32) if side == "K" else value)
        header = scale_bytes + mean_bytes + mean_scale.astype("<f2").tobytes() + biases
        block += header + b"\0" * (-len(header) % 64) + side_lines
    return block, np.stack([np.stack(side) for side in decoded]), ends[0], ends[1]


def correction(fmt, x, scale):
    """f16 factor of static scales for [tokens][channels] of one head (docs/formats/block.md)."""
    with np.errstate(all="ignore"):
        inverse = (F32(1) / (np.asarray(scale, F32) * MAX_CODE[fmt])).astype(F32)
        use = np.minimum(np.abs((x * inverse).astype(F32)), MAX_HALF)
    use = np.where(np.isfinite(x), use, F32(0))
    reach = use.max()
    if reach <= F32(1.2) and 1000 * (use > 1).sum() <= 3 * use.size:
        return F16(1)
    nearest = F16(reach)
    return np.nextafter(nearest, F16(np.inf)) if nearest < reach else nearest


def encode_side(side, fmt, granularity, x, static):
    """x f32 [heads][tokens][channels] -> per head (scales, zero points, block scale, lines as bytes), decoded f32, end codes."""
    heads, tokens, channels = x.shape
    granularity, _, option = granularity.partition(":")
    dynamic = granularity in ("per_token_head", "per_group")
    group = int(option) if granularity == "per_group" else channels
    out, decoded, ends = [], [], 0
    for head in range(heads):
        scale_bytes = zero_bytes = factor_bytes = b""
        scale, zero = F32(1), F32(0)
        if dynamic:
            scales, zeros = fit(fmt, x[head].reshape(tokens, channels // group, group))
            scale_bytes = scales.T.astype("<f2").tobytes()
            scale = np.repeat(scales.astype(F32), group, axis=1)
            if zeros is not None:
                zero_bytes = zeros.T.astype("<f2").tobytes()
                zero = np.repeat(zeros.astype(F32), group, axis=1)
        elif granularity == "per_tensor":
            scale = static["per_tensor"][0]
        elif granularity == "per_head":
            scale = static["per_head"][head]
        elif granularity == "per_channel":
            scale = static["per_channel"][head][None, :]
        if granularity in STATIC and option != "fixed":
            factor = correction(fmt, x[head], scale)
            factor_bytes = factor.astype("<f2").tobytes()
            scale = (np.asarray(scale, F32) * F32(factor)).astype(F32)
        if granularity == "per_block":
            amax = np.abs(np.where(np.isfinite(x[head]), x[head], F32(0))).max()
            factor = np.minimum(F32(amax) / MAX_CODE[fmt], MAX_HALF).astype(F16)
            factor_bytes = factor.astype("<f2").tobytes()
            scale = F32(factor)
        stored = quantize(fmt, x[head], np.asarray(scale, F32), np.asarray(zero, F32))
        out.append((scale_bytes, zero_bytes, factor_bytes, lines(side, fmt, stored)))
        decoded.append(dequantize(fmt, stored, np.asarray(scale, F32), np.asarray(zero, F32)))
        ends += end_codes(fmt, stored)
    return out, np.stack(decoded), ends


def encode_block(spec, x, static):
    if spec[2] == "per_token_head_u8":
        return encode_bytes_block(spec, x)
    k, decoded_k, ends_k = encode_side("K", spec[0], spec[2], x[0], static[0])
    v, decoded_v, ends_v = encode_side("V", spec[1], spec[3], x[1], static[1])
    block = b""
    for (k_scales, k_zeros, k_factor, k_lines), (v_scales, v_zeros, v_factor, v_lines) in zip(k, v):
        header = k_scales + v_scales + k_zeros + v_zeros + k_factor + v_factor
        block += header + b"\0" * (-len(header) % 64) + k_lines + v_lines
    return block, np.stack([decoded_k, decoded_v]), ends_k, ends_v


def make_input():
    """Values like those of a real cache, and rows that hurt. f16 [2][2][32][64]."""
    rng = np.random.default_rng(20260101)
    x = rng.standard_normal((2, 2, 32, 64)) * np.exp(rng.standard_normal((2, 2, 32, 1)))
    x[0, :, :, 7] += 40                                   # an outlier channel, as K has
    x[:, :, 3] = 0                                        # zeros
    x[:, :, 4] = -2.75                                    # constant
    x[:, :, 5] = rng.standard_t(1.5, (2, 2, 64)) * 50     # heavy tails
    x[:, :, 6] *= 2.0 ** -22                              # subnormal f16
    x[:, :, 7, ::2], x[:, :, 7, 1::2] = 65504, -65504     # the ends of f16
    x[:, :, 8] = np.arange(64) - 31.5                     # ties
    x[:, :, 10] = np.abs(x[:, :, 10]) + 9                 # far from zero
    x[:, :, 12] = 0
    x = np.clip(x, -65504, 65504).astype(F16)
    x[:, :, 9, 5], x[:, :, 9, 6], x[:, :, 9, 7] = np.nan, np.inf, -np.inf
    x[:, :, 11] = np.nan                                  # nothing finite
    x[:, :, 12, 40], x[:, :, 12, 41] = np.inf, F16(-0.0)  # infinity among zeros
    return x


def make_static(x):
    finite = np.where(np.isfinite(x), np.abs(x.astype(F32)), F32(0))
    finite[:, :, 7] = 0  # what calibration did not see must saturate
    out = []
    for side in range(2):
        channel = np.maximum(finite[side].max(1), F32(0.01))
        out.append({"per_tensor": np.array([channel.max() / 127], F32), "per_head": (channel.max(1) / 127).astype(F32),
                    "per_channel": (channel / 127).astype(F32)})
    return out


def block_specs():
    dynamic = ["per_token_head", "per_group:32", "per_group:64"]
    static = [granularity + option for option in (":fixed", "") for granularity in STATIC]
    same = [("f32", ["none"]), ("f16", ["none"]), ("bf16", ["none"]), ("int8", dynamic + static),
            ("fp8_e4m3", ["none"] + dynamic + static), ("fp8_e5m2", ["none"] + dynamic + static),
            ("int4_sym", dynamic + static), ("int4_asym", dynamic)]
    specs = [(fmt, fmt, g, g, 2, 64) for fmt, granularities in same for g in granularities]
    specs += [(fmt, fmt, "per_group:128", "per_group:128", 1, 128) for fmt in ("int8", "int4_sym", "int4_asym", "fp8_e4m3")]
    specs += [("int8", "int4_sym", "per_token_head", "per_group:32", 2, 64), ("int4_asym", "f16", "per_group:32", "none", 2, 64),
              ("fp8_e4m3", "int4_asym", "none", "per_token_head", 2, 64), ("int8", "int8", "per_channel:fixed", "per_token_head", 2, 64),
              ("int8", "int8", "per_channel", "per_token_head", 2, 64)]
    byte = "per_token_head_u8"
    specs += [(fmt, fmt, byte, byte, 2, 64) for fmt in ("int8", *NARROW)]
    specs += [("int6", "int4", byte, byte, 1, 128), ("int4", "int8", byte, byte, 2, 64)]
    specs += [(fmt, fmt, "per_block", "per_block", 2, 64) for fmt in ("int8", "fp8_e4m3", "fp8_e5m2", "int4_sym")]
    specs += [("int8", "int4_sym", "per_block", "per_head", 2, 64)]
    return specs


DECODED = {("int8", "int8", "per_block"), ("int4", "int4", "per_token_head_u8"), ("int8", "int8", "per_token_head_u8"),
           ("int5", "int5", "per_token_head_u8"),("int8", "int8", "per_token_head"), ("int4_sym", "int4_sym", "per_channel:fixed"), ("fp8_e4m3", "fp8_e4m3", "per_head:fixed"),
           ("int4_sym", "int4_sym", "per_channel"), ("fp8_e4m3", "fp8_e4m3", "per_head"),
           ("fp8_e5m2", "fp8_e5m2", "none"), ("int4_asym", "int4_asym", "per_group:32")}


def make_blocks(files):
    x = make_input()
    static = make_static(x)
    files["input.bin"] = x.astype("<f2").tobytes()
    files["static.bin"] = b"".join(s[g].astype("<f4").tobytes() for s in static
                                   for g in ("per_tensor", "per_head", "per_channel"))
    blocks, decoded, text = b"", b"", ["# K V granularity_K granularity_V heads head_dim block_size offset bytes "
                                       "end_codes_K end_codes_V decoded_offset"]
    for spec in block_specs():
        heads, head_dim = spec[4:]
        # Two heads of 64 side by side make the head of 128.
        values = x if heads == 2 else np.concatenate([x[:, :1], x[:, 1:]], axis=3)
        block, values_decoded, ends_k, ends_v = encode_block(spec, values.astype(F32), static)
        decoded_offset = -1
        if spec[:3] in DECODED:
            decoded_offset = len(decoded)
            decoded += values_decoded.astype("<f4").tobytes()
        text.append(f"{spec[0]} {spec[1]} {spec[2]} {spec[3]} {heads} {head_dim} 32 {len(blocks)} {len(block)} "
                    f"{ends_k} {ends_v} {decoded_offset}")
        blocks += block
    files["blocks.bin"], files["decoded.bin"], files["blocks.txt"] = blocks, decoded, ("\n".join(text) + "\n").encode()


def make_tables(files):
    halves = np.arange(65536, dtype=np.uint16).view(F16).astype(F32)
    for fmt in ("fp8_e4m3", "fp8_e5m2", "bf16", "int8", "int4_sym", "int4_asym"):
        scale, zero = RULER.get(fmt, (F16(1), F16(0)))
        codes = quantize(fmt, halves, F32(scale), F32(zero))
        files[f"half_to_{fmt}.bin"] = codes.astype(codes.dtype.newbyteorder("<")).tobytes()
    for fmt, (dtype, _) in FP8.items():
        files[f"{fmt}_to_f32.bin"] = np.arange(256, dtype=np.uint8).view(dtype).astype("<f4").tobytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the committed files instead of writing them")
    check = parser.parse_args().check
    files = {}
    make_tables(files)
    make_blocks(files)
    if not check:
        DATA.mkdir(exist_ok=True)
        for name, content in files.items():
            (DATA / name).write_bytes(content)
        print(f"{len(files)} files, {sum(map(len, files.values()))} bytes")
        return 0
    known = {path.name for path in DATA.iterdir()}
    differing = sorted(name for name, content in files.items()
                       if name not in known or (DATA / name).read_bytes() != content)
    differing += sorted(known - files.keys())
    print("golden files: " + ("differ: " + ", ".join(differing) if differing else f"{len(files)} as committed"))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
