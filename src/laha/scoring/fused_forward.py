"""The forward kernel of the fused scoring: both attentions of all labels on a document, fused and scored."""

# A program takes blocks of labels of one document after the other. For each it runs self-attention over the words,
# then interaction attention, puts both results aside in a buffer of its own (which stays in L2), and joins them. One
# attention at a time is what lets a program own 128 labels: two float32 accumulators of 128 x 256 would be the whole
# register file of an SM; with 64 labels K and V tiles move twice through L2, and shared memory is the bottleneck.

from __future__ import annotations

from inspect import signature

import triton
import triton.language as tl
from triton import knobs

LOG2E = tl.constexpr(1.4426950408889634)  # exp(s) = exp2(s log2 e): the hardware has exp2
SHARED_MEMORY = 227 * 1024  # bytes a program may hold on sm_90
INTERPRETED = knobs.runtime.interpret  # as these kernels were made; the variable may change later

if INTERPRETED:
    # Triton 3.6 reads the bound of a loop as int(array of one number), which numpy 2.4 refuses.
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patch_tensor_index(tensor, scope):
        """Patch the tensor as the interpreter does, and let it be a loop's bound under any numpy."""
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch_tensor_index


def tuned(key, owned, streamed, *blocks):
    """Return the autotuner over (rows owned, columns a step, warps, stages), first the likeliest to be best.

    `owned` and `streamed` count the tiles of R features that a program keeps and that a step loads: what does not fit
    shared memory is left out.
    """
    if INTERPRETED:
        return triton.autotune([triton.Config({"BLOCK_ROWS": 16, "BLOCK_COLUMNS": 16})], key=key)

    def fitting(choices, arguments, **settings):
        width = settings["R"] * next(iter(arguments.values())).element_size()  # bytes a row
        if width == 4 * settings["R"]:  # float32: no tensor cores to feed, and nothing larger fits
            return choices[-1:]

        def shared(choice):
            rows, columns = choice.kwargs["BLOCK_ROWS"], choice.kwargs["BLOCK_COLUMNS"]
            return width * (owned * rows + streamed * columns * choice.num_stages)

        return [choice for choice in choices if shared(choice) <= SHARED_MEMORY] or choices[-1:]

    choices = [
        triton.Config({"BLOCK_ROWS": rows, "BLOCK_COLUMNS": columns}, num_warps=warps, num_stages=stages)
        for rows, columns, warps, stages in (*blocks, (32, 32, 4, 1))
    ]
    known = "cache_results" in signature(triton.autotune).parameters
    return triton.autotune(
        choices, key=key, prune_configs_by={"early_config_prune": fitting}, **({"cache_results": True} if known else {})
    )


@triton.jit
def attend(
    Q,
    K_start,
    V_start,
    g_start,
    K_stride,
    V_stride,
    g_stride,
    length,
    R: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return a block of labels' attention on one document: its values, its gate column, its log2-sum-exp2."""
    word = tl.arange(0, BLOCK_COLUMNS)
    K_tiles = K_start + word[:, None] * K_stride + tl.arange(0, R)[None, :]
    V_tiles = V_start + word[:, None] * V_stride + tl.arange(0, R)[None, :]
    peak = tl.full([BLOCK_ROWS], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_ROWS], tl.float32)
    gate = tl.zeros([BLOCK_ROWS], tl.float32)
    values = tl.zeros([BLOCK_ROWS, R], tl.float32)
    for start in range(0, length, BLOCK_COLUMNS):
        here = start + word < length
        K = tl.load(K_tiles + start * K_stride, mask=here[:, None], other=0.0)
        M = tl.dot(Q, tl.trans(K), input_precision=PRECISION)  # (labels, words)
        M = tl.where(here[None, :], M, float("-inf"))
        higher = tl.maximum(peak, tl.max(M, 1) * LOG2E)
        P = tl.exp2(M * LOG2E - higher[:, None])
        shrink = tl.exp2(peak - higher)
        g = tl.load(g_start + (start + word) * g_stride, mask=here, other=0.0)
        total = total * shrink + tl.sum(P, 1)
        gate = gate * shrink + tl.sum(P * g[None, :], 1)
        V = tl.load(V_tiles + start * V_stride, mask=here[:, None], other=0.0)
        values = tl.dot(P.to(V.dtype), V, values * shrink[:, None], input_precision=PRECISION)  # (labels, r)
        peak = higher
    return values * (1.0 / total)[:, None], gate / total, peak + tl.log2(total)


@triton.jit
def log_sigmoid(x):
    """Return log σ(x) without overflow."""
    return tl.minimum(x, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(x)))


@tuned(
    *(["R", "TRAINING", "OWN", "HIDDEN", "k_bucket", "n_bucket"], 1, 2),
    *((128, 64, 8, 2), (128, 32, 8, 3), (128, 32, 8, 4), (64, 32, 4, 2)),
)
@triton.jit(do_not_specialize=["k_bucket", "n_bucket"])
def forward_kernel(
    Q_S,
    Q_I,
    K_S,
    K_I,
    V,
    g,
    lengths,
    c,
    b_f,
    w_o,
    b_o,
    logits,
    statistics,
    signs,
    hidden,
    aside,
    documents,
    k,
    statistic_stride,
    K_S_document,
    K_S_stride,
    K_I_document,
    K_I_stride,
    V_document,
    V_stride,
    g_document,
    g_stride,
    k_bucket,
    n_bucket,
    R: tl.constexpr,
    TRAINING: tl.constexpr,
    OWN: tl.constexpr,
    HIDDEN: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Write the logits of BLOCK_ROWS labels for one document, and in training what the backward kernels need.

    `OWN`: each label has its row of w_o and its b_o. `HIDDEN`: ReLU(u) is written too, for the gradient of those rows.
    """
    unit = tl.arange(0, R)
    label_blocks = tl.cdiv(k, BLOCK_ROWS)
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    chunk = tl.arange(0, 32)
    aside_side = tl.num_programs(0) * BLOCK_ROWS * R  # behind all programs' C_S come their C_I
    C_aside = aside + row[:, None] * R + unit[None, :]
    C_chunks = aside + row[:, None] * R + chunk[None, :]
    # labels change fastest: programs side by side share a document's K and V in L2
    for tile in range(tl.program_id(0), documents * label_blocks, tl.num_programs(0)):
        document = (tile // label_blocks).to(tl.int64)
        label = (tile % label_blocks) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
        real = label < k
        length = tl.load(lengths + document)
        V_start, g_start = V + document * V_document, g + document * g_document

        x = tl.zeros([BLOCK_ROWS], tl.float32)
        y = tl.zeros([BLOCK_ROWS], tl.float32)
        place = document * k + label
        for side in range(2):
            if side == 0:
                Q_start, K_start, K_stride = Q_S, K_S + document * K_S_document, K_S_stride
            else:
                Q_start, K_start, K_stride = Q_I, K_I + document * K_I_document, K_I_stride
            Q = tl.load(Q_start + label[:, None] * R + unit[None, :], mask=real[:, None], other=0.0)
            C, gate, lse = attend(
                *(Q, K_start, V_start, g_start + side, K_stride, V_stride, g_stride, length),
                *(R, BLOCK_ROWS, BLOCK_COLUMNS, PRECISION),
            )
            tl.store(C_aside + side * aside_side, C.to(aside.dtype.element_ty))
            x = tl.where(side == 0, gate, x)
            y = gate
            if TRAINING:
                tl.store(statistics + side * statistic_stride + place, lse, mask=real)
        tl.debug_barrier()  # what a thread put aside another takes up
        x += tl.load(c)
        y += tl.load(c + 1)
        alpha = 1.0 / (1.0 + tl.exp(log_sigmoid(y) - log_sigmoid(x)))
        score = tl.zeros([BLOCK_ROWS], tl.float32)
        e_S = tl.zeros([BLOCK_ROWS], tl.float32)
        e_I = tl.zeros([BLOCK_ROWS], tl.float32)
        for first in tl.static_range(0, R, 32):
            C_S = tl.load(C_chunks + first).to(tl.float32)
            C_I = tl.load(C_chunks + aside_side + first).to(tl.float32)
            b = tl.load(b_f + first + chunk)[None, :]
            if OWN:
                w = tl.load(w_o + label[:, None] * R + (first + chunk)[None, :], mask=real[:, None], other=0.0)
            else:
                w = tl.load(w_o + first + chunk)[None, :]
            u = alpha[:, None] * C_S + (1.0 - alpha)[:, None] * C_I + b  # (labels, 32)
            score += tl.sum(tl.maximum(u, 0.0) * w, 1)
            if HIDDEN:
                positive = tl.maximum(u, 0.0).to(hidden.dtype.element_ty)
                tl.store(hidden + place[:, None] * R + (first + chunk)[None, :], positive, mask=real[:, None])
            if TRAINING:
                w = tl.where(u > 0.0, w, 0.0)
                e_S += tl.sum(w * C_S, 1)
                e_I += tl.sum(w * C_I, 1)
                bits = tl.sum((u > 0.0).to(tl.int32) << chunk[None, :], 1)
                tl.store(signs + place * (R // 32) + first // 32, bits, mask=real)
        if OWN:
            score += tl.load(b_o + label, mask=real, other=0.0)
        else:
            score += tl.load(b_o)
        tl.store(logits + place, score, mask=real)
        if TRAINING:
            tl.store(statistics + 2 * statistic_stride + place, x, mask=real)
            tl.store(statistics + 3 * statistic_stride + place, y, mask=real)
            tl.store(statistics + 4 * statistic_stride + place, e_S, mask=real)
            tl.store(statistics + 5 * statistic_stride + place, e_I, mask=real)
