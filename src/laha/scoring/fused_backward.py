"""The backward kernels of the fused scoring: attention computed again, nothing of size words x labels stored."""

# With m = 1[u > 0], V_w = w_o ∘ V, G = m V_wᵀ, and for each attention, from the forward kernel's statistics,
# w (α δ or β δ), s (the gate's gradient) and D:    dS = P ∘ (w G + s gᵀ − D)
#     dQ = Σ dS K,  dK = Σ dSᵀ Q,  dg = Σ Pᵀ s,  dV' = Σ ((w_S P_S + w_I P_I)ᵀ m),  dV = w_o ∘ dV'
# Where each label has a row of its own in place of w_o (OWN), m ∘ w_j takes the place of m, V of V_w, dV of dV'.
# One attention a program: its accumulator of 128 rows x 256 fills half the registers. No atomics: a program owns what
# it writes, so the same input gives the same gradient, bit by bit.

from __future__ import annotations

import triton
import triton.language as tl

from laha.scoring.fused_forward import LOG2E, tuned


@triton.jit
def unpack(signs, ROWS: tl.constexpr, R: tl.constexpr):
    """Return the 0/1 matrix (ROWS, R) that `signs` (ROWS, R / 32) holds as bits."""
    bits = (signs[:, :, None] >> tl.arange(0, 32)[None, None, :]) & 1
    return tl.reshape(bits, (ROWS, R))


@tuned(["R", "OWN", "k_bucket", "n_bucket"], 2, 2, (128, 32, 8, 2), (128, 64, 8, 1), (64, 32, 4, 1))
@triton.jit(do_not_specialize=["k_bucket", "n_bucket"])
def query_gradient_kernel(
    Q,
    K,
    V_w,
    W_o,
    g,
    lengths,
    signs,
    lse,
    weights,
    slopes,
    offsets,
    dQ,
    documents,
    k,
    K_document,
    K_stride,
    V_document,
    V_stride,
    g_document,
    g_stride,
    k_bucket,
    n_bucket,
    R: tl.constexpr,
    OWN: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Write dQ of one attention: a program owns BLOCK_ROWS labels and reads all documents."""
    label = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    real = label < k
    unit = tl.arange(0, R)
    word = tl.arange(0, BLOCK_COLUMNS)
    Q_tile = tl.load(Q + label[:, None] * R + unit[None, :], mask=real[:, None], other=0.0)
    gradient = tl.zeros([BLOCK_ROWS, R], tl.float32)
    for document in range(documents):
        length = tl.load(lengths + document)
        place = tl.cast(document, tl.int64) * k + label
        peak = tl.load(lse + place, mask=real, other=0.0)[:, None]
        weight = tl.load(weights + place, mask=real, other=0.0)[:, None]
        slope = tl.load(slopes + place, mask=real, other=0.0)[:, None]
        offset = tl.load(offsets + place, mask=real, other=0.0)[:, None]
        bits = place[:, None] * (R // 32) + tl.arange(0, R // 32)[None, :]
        m = unpack(tl.load(signs + bits, mask=real[:, None], other=0), BLOCK_ROWS, R).to(V_w.dtype.element_ty)
        if OWN:
            m *= tl.load(W_o + label[:, None] * R + unit[None, :], mask=real[:, None], other=0.0)
        K_tiles = K + tl.cast(document, tl.int64) * K_document + word[:, None] * K_stride + unit[None, :]
        V_tiles = V_w + tl.cast(document, tl.int64) * V_document + word[:, None] * V_stride + unit[None, :]
        g_start = g + tl.cast(document, tl.int64) * g_document
        for start in range(0, length, BLOCK_COLUMNS):
            here = start + word < length
            K_tile = tl.load(K_tiles + start * K_stride, mask=here[:, None], other=0.0)
            V_tile = tl.load(V_tiles + start * V_stride, mask=here[:, None], other=0.0)
            M = tl.dot(Q_tile, tl.trans(K_tile), input_precision=PRECISION)  # (labels, words)
            G = tl.dot(m, tl.trans(V_tile), input_precision=PRECISION)
            gate = tl.load(g_start + (start + word) * g_stride, mask=here, other=0.0)[None, :]
            dS = tl.exp2(M * LOG2E - peak) * (weight * G + slope * gate - offset)
            dS = tl.where(here[None, :], dS, 0.0)
            gradient = tl.dot(dS.to(K_tile.dtype), K_tile, gradient, input_precision=PRECISION)
    tl.store(dQ + label[:, None] * R + unit[None, :], gradient.to(dQ.dtype.element_ty), mask=real[:, None])


@tuned(["R", "OWN", "k_bucket", "n_bucket"], 2, 1, (128, 32, 8, 2), (128, 64, 8, 1), (128, 32, 8, 3), (64, 32, 4, 1))
@triton.jit(do_not_specialize=["k_bucket", "n_bucket"])
def key_gradient_kernel(
    Q,
    K,
    V_w,
    W_o,
    lengths,
    signs,
    lse,
    weights,
    slopes,
    offsets,
    g,
    dK,
    dg,
    n,
    k,
    K_document,
    K_stride,
    V_document,
    V_stride,
    g_document,
    g_stride,
    k_bucket,
    n_bucket,
    R: tl.constexpr,
    OWN: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Write dK and dg of one attention: a program owns BLOCK_ROWS words of a document and reads all labels."""
    document = tl.program_id(1).to(tl.int64)
    length = tl.load(lengths + document)
    if tl.program_id(0) * BLOCK_ROWS >= length:
        return
    word = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    here = word < length
    unit = tl.arange(0, R)
    place = document * n + word
    K_rows = K + document * K_document + word[:, None] * K_stride + unit[None, :]
    V_rows = V_w + document * V_document + word[:, None] * V_stride + unit[None, :]
    K_tile = tl.load(K_rows, mask=here[:, None], other=0.0)
    V_tile = tl.load(V_rows, mask=here[:, None], other=0.0)
    gate = tl.load(g + document * g_document + word * g_stride, mask=here, other=0.0)[:, None]
    gradient = tl.zeros([BLOCK_ROWS, R], tl.float32)
    gate_gradient = tl.zeros([BLOCK_ROWS], tl.float32)
    label = tl.arange(0, BLOCK_COLUMNS)
    Q_tiles = Q + label[:, None] * R + unit[None, :]
    W_tiles = W_o + label[:, None] * R + unit[None, :]
    sign_tiles = signs + (document * k + label)[:, None] * (R // 32) + tl.arange(0, R // 32)[None, :]
    for start in range(0, k, BLOCK_COLUMNS):
        real = start + label < k
        at = document * k + start + label
        peak = tl.load(lse + at, mask=real, other=float("inf"))[None, :]  # no weight on labels beyond k
        weight = tl.load(weights + at, mask=real, other=0.0)[None, :]
        slope = tl.load(slopes + at, mask=real, other=0.0)[None, :]
        offset = tl.load(offsets + at, mask=real, other=0.0)[None, :]
        Q_tile = tl.load(Q_tiles + start * R, mask=real[:, None], other=0.0)
        bits = tl.load(sign_tiles + start * (R // 32), mask=real[:, None], other=0)
        m = unpack(bits, BLOCK_COLUMNS, R).to(V_tile.dtype)
        if OWN:
            m *= tl.load(W_tiles + start * R, mask=real[:, None], other=0.0)
        M = tl.dot(K_tile, tl.trans(Q_tile), input_precision=PRECISION)  # (words, labels)
        G = tl.dot(V_tile, tl.trans(m), input_precision=PRECISION)
        P = tl.exp2(M * LOG2E - peak)
        dS = P * (weight * G + slope * gate - offset)
        gate_gradient += tl.sum(P * slope, 1)
        gradient = tl.dot(dS.to(Q_tile.dtype), Q_tile, gradient, input_precision=PRECISION)
    tl.store(dK + place[:, None] * R + unit[None, :], gradient.to(dK.dtype.element_ty), mask=here[:, None])
    tl.store(dg + place * 2, gate_gradient, mask=here)


@tuned(["R", "OWN", "k_bucket", "n_bucket"], 1, 1, (128, 64, 8, 2), (128, 64, 8, 3), (64, 64, 4, 1))
@triton.jit(do_not_specialize=["k_bucket", "n_bucket"])
def value_gradient_kernel(
    Q_S,
    Q_I,
    K_S,
    K_I,
    W_o,
    lengths,
    signs,
    lse,
    weights,
    dV,
    n,
    k,
    statistic_stride,
    K_S_document,
    K_S_stride,
    K_I_document,
    K_I_stride,
    k_bucket,
    n_bucket,
    R: tl.constexpr,
    OWN: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Write dV': a program owns BLOCK_ROWS words of a document and reads all labels, once for each attention."""
    document = tl.program_id(1).to(tl.int64)
    length = tl.load(lengths + document)
    if tl.program_id(0) * BLOCK_ROWS >= length:
        return
    word = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    here = word < length
    unit = tl.arange(0, R)
    label = tl.arange(0, BLOCK_COLUMNS)
    W_tiles = W_o + label[:, None] * R + unit[None, :]
    sign_tiles = signs + (document * k + label)[:, None] * (R // 32) + tl.arange(0, R // 32)[None, :]
    gradient = tl.zeros([BLOCK_ROWS, R], tl.float32)
    for side in range(2):
        if side == 0:
            Q, K, K_stride = Q_S, K_S + document * K_S_document, K_S_stride
        else:
            Q, K, K_stride = Q_I, K_I + document * K_I_document, K_I_stride
        K_tile = tl.load(K + word[:, None] * K_stride + unit[None, :], mask=here[:, None], other=0.0)
        Q_tiles = Q + label[:, None] * R + unit[None, :]
        for start in range(0, k, BLOCK_COLUMNS):
            real = start + label < k
            at = side * statistic_stride + document * k + start + label
            peak = tl.load(lse + at, mask=real, other=float("inf"))[None, :]  # no weight on labels beyond k
            weight = tl.load(weights + at, mask=real, other=0.0)[None, :]
            Q_tile = tl.load(Q_tiles + start * R, mask=real[:, None], other=0.0)
            bits = tl.load(sign_tiles + start * (R // 32), mask=real[:, None], other=0)
            m = unpack(bits, BLOCK_COLUMNS, R).to(K_tile.dtype)
            if OWN:
                m *= tl.load(W_tiles + start * R, mask=real[:, None], other=0.0)
            M = tl.dot(K_tile, tl.trans(Q_tile), input_precision=PRECISION)  # (words, labels)
            W = weight * tl.exp2(M * LOG2E - peak)
            gradient = tl.dot(W.to(K_tile.dtype), m, gradient, input_precision=PRECISION)
    place = document * n + word
    tl.store(dV + place[:, None] * R + unit[None, :], gradient, mask=here[:, None])
