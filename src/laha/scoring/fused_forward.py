"""The forward kernel of the fused scoring: both attentions of all labels on a document, fused and scored."""

# A program takes blocks of labels of one document after the other. For each it runs self-attention over the words, puts
# the result aside in a buffer of its own (which stays in L2), runs interaction attention, and joins both. One attention
# at a time is what lets a program own 128 labels: two float32 accumulators of 128 x 256 would be the whole register
# file of an SM; with 64 labels K and V tiles move twice through L2, and shared memory is the bottleneck.
#
# The sums of P and of P g are a product too: sums across the threads that hold a row are slower than tensor cores. From
# Hopper on, tiles come by tensor descriptors (TMA), which know no document's length: the words behind it, another
# document's perhaps, get no weight, and V is copied before, as no weight times NaN would be NaN.

from __future__ import annotations

from inspect import signature

import triton
import triton.language as tl
from triton import knobs

LOG2E = tl.constexpr(1.4426950408889634)  # exp(s) = exp2(s log2 e): the hardware has exp2
SHARED_MEMORY = 227 * 1024  # bytes a program may hold on sm_90
INTERPRETED = knobs.runtime.interpret  # as these kernels were made; the variable may change later
DESCRIBED_WORDS = 16 if INTERPRETED else 64  # of a tile that comes by a descriptor: BLOCK_COLUMNS of the first choice
SUMS = tl.constexpr(16)  # columns of the product that sums, the fewest a tensor core knows

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
    shared memory is left out. Descriptors are made for the first choice.
    """
    if INTERPRETED:
        return triton.autotune([triton.Config({"BLOCK_ROWS": 16, "BLOCK_COLUMNS": 16})], key=key)

    def fitting(choices, arguments, **settings):
        if settings.get("DESCRIBED"):
            return choices[:1]
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


@triton.jit(do_not_specialize=["n"])
def prepare_kernel(
    V,
    g,
    lengths,
    V_clean,
    G,
    n,
    V_document,
    V_stride,
    g_document,
    g_stride,
    R: tl.constexpr,
    COPY: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Write G, its rows [1, g_0 in two parts, g_1 in two parts, zeros], and a copy of V, both with zeros for padding.

    Two parts, because half precision alone would leave three digits of a gate.
    """
    document = tl.program_id(1).to(tl.int64)
    word = tl.program_id(0) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    here = word < tl.load(lengths + document)
    place = document * n + word
    column = tl.arange(0, SUMS)
    side = tl.minimum((column - 1) // 2, 1)
    gate = (column > 0) & (column < 5)
    gates = g + document * g_document + word[:, None] * g_stride + side[None, :]
    whole = tl.load(gates, mask=here[:, None] & gate[None, :], other=0.0)
    first = whole.to(G.dtype.element_ty)
    parts = tl.where(column[None, :] % 2 == 1, first, (whole - first.to(tl.float32)).to(G.dtype.element_ty))
    parts = tl.where((column[None, :] == 0) & here[:, None], 1.0, parts).to(G.dtype.element_ty)
    tl.store(G + place[:, None] * SUMS + column[None, :], parts, mask=(word < n)[:, None])
    if COPY:
        unit = tl.arange(0, R)
        values = V + document * V_document + word[:, None] * V_stride + unit[None, :]
        values = tl.load(values, mask=here[:, None], other=0.0)
        tl.store(V_clean + place[:, None] * R + unit[None, :], values, mask=(word < n)[:, None])


@triton.jit
def read(tiles, row, stride, here, WIDTH: tl.constexpr, DESCRIBED: tl.constexpr):
    """Return the tile of words from `row` on: by descriptor, or with zeros where there are no words."""
    if DESCRIBED:
        return tiles.load([row, 0])
    else:
        word = row + tl.arange(0, here.shape[0])
        return tl.load(tiles + word[:, None] * stride + tl.arange(0, WIDTH)[None, :], mask=here[:, None], other=0.0)


@triton.jit
def attend(
    Q,
    K,
    V,
    G,
    first,
    K_stride,
    V_stride,
    length,
    SIDE: tl.constexpr,
    R: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    DESCRIBED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return a block of labels' attention on one document: its values, its gate, its log2-sum-exp2.

    `first` is the document's first row in K, V and G.
    """
    word = tl.arange(0, BLOCK_COLUMNS)
    column = tl.arange(0, SUMS)
    peak = tl.full([BLOCK_ROWS], float("-inf"), tl.float32)
    sums = tl.zeros([BLOCK_ROWS, SUMS], tl.float32)
    values = tl.zeros([BLOCK_ROWS, R], tl.float32)
    for start in range(0, length, BLOCK_COLUMNS):
        here = start + word < length
        K_tile = read(K, first + start, K_stride, here, R, DESCRIBED)
        M = tl.dot(Q, tl.trans(K_tile), input_precision=PRECISION)  # (labels, words)
        if start + BLOCK_COLUMNS > length:
            M = tl.where(here[None, :], M, float("-inf"))
        higher = tl.maximum(peak, tl.max(M, 1) * LOG2E)
        P = tl.exp2(M * LOG2E - higher[:, None]).to(Q.dtype)
        shrink = tl.exp2(peak - higher)
        G_tile = read(G, first + start, SUMS, here, SUMS, DESCRIBED)
        sums = tl.dot(P, G_tile, sums * shrink[:, None], input_precision=PRECISION)  # (labels, 16)
        V_tile = read(V, first + start, V_stride, here, R, DESCRIBED)
        values = tl.dot(P, V_tile, values * shrink[:, None], input_precision=PRECISION)  # (labels, r)
        peak = higher
    total = tl.sum(tl.where(column[None, :] == 0, sums, 0.0), 1)
    parts = (column == 1 + 2 * SIDE) | (column == 2 + 2 * SIDE)
    gate = tl.sum(tl.where(parts[None, :], sums, 0.0), 1)
    return values * (1.0 / total)[:, None], gate / total, peak + tl.log2(total)


@triton.jit
def halves(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the left and the right half of x (ROWS, COLUMNS); no number changes its thread."""
    return tl.split(tl.permute(tl.reshape(x, (ROWS, 2, COLUMNS // 2)), (0, 2, 1)))


@triton.jit
def log_sigmoid(x):
    """Return log σ(x) without overflow."""
    return tl.minimum(x, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(x)))


# The first choice took 5.1 ms on an H200 at the claims' shape; the others are for smaller memories and no descriptors.
@tuned(
    *(["R", "TRAINING", "OWN", "HIDDEN", "DESCRIBED", "k_bucket", "n_bucket"], 1, 2),
    *((128, 64, 8, 2), (128, 32, 8, 3), (64, 32, 4, 2)),
)
@triton.jit(do_not_specialize=["documents", "n", "k", "k_bucket", "n_bucket"])
def forward_kernel(
    Q_S,
    Q_I,
    K_S,
    K_I,
    V,
    G,
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
    unsure,
    documents,
    n,
    k,
    statistic_stride,
    K_S_document,
    K_S_stride,
    K_I_document,
    K_I_stride,
    V_document,
    V_stride,
    k_bucket,
    n_bucket,
    R: tl.constexpr,
    TRAINING: tl.constexpr,
    OWN: tl.constexpr,
    HIDDEN: tl.constexpr,
    DESCRIBED: tl.constexpr,
    SECOND: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Write the logits of BLOCK_ROWS labels for one document, and in training what the backward kernels need.

    `OWN`: each label has its row of w_o and its b_o. `HIDDEN`: ReLU(u) is written too, for the gradient of those rows.
    `DESCRIBED`: K_S, K_I, V and G are descriptors. `SECOND`: behind another kernel, do only what that one was not sure
    of: unsure[0] says whether there is any, unsure[1:] which tiles of 128 labels.
    """
    if SECOND:  # noqa: SIM102  Triton would read it without the first condition
        if tl.load(unsure) == 0:
            return
    unit = tl.arange(0, R)
    label_blocks = tl.cdiv(k, BLOCK_ROWS)
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    C_aside = aside + row[:, None] * R + unit[None, :]
    # labels change fastest: programs side by side share a document's K and V in L2
    for tile in range(tl.program_id(0), documents * label_blocks, tl.num_programs(0)):
        number = tile // label_blocks
        document = number.to(tl.int64)
        label = (tile % label_blocks) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
        real = label < k
        length = tl.load(lengths + document)
        if SECOND:
            wanted = tl.load(unsure + 1 + tile) != 0
            real &= wanted
            length = tl.where(wanted, length, 0)
        place = document * k + label
        x = tl.zeros([BLOCK_ROWS], tl.float32)
        y = tl.zeros([BLOCK_ROWS], tl.float32)
        C = tl.zeros([BLOCK_ROWS, R], tl.float32)
        for side in tl.static_range(2):
            Q, K, K_document, K_stride = Q_S, K_S, K_S_document, K_S_stride
            if side == 1:
                Q, K, K_document, K_stride = Q_I, K_I, K_I_document, K_I_stride
            queries = tl.load(Q + label[:, None] * R + unit[None, :], mask=real[:, None], other=0.0)
            V_words, G_words, first = V, G, number * n
            if not DESCRIBED:
                K += document * K_document
                V_words, G_words, first = V + document * V_document, G + document * n * SUMS, 0
            C, gate, lse = attend(
                *(queries, K, V_words, G_words, first, K_stride, V_stride, length),
                *(side, R, BLOCK_ROWS, BLOCK_COLUMNS, DESCRIBED, PRECISION),
            )
            if side == 0:
                x = gate
                tl.store(C_aside, C.to(aside.dtype.element_ty))
            else:
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
        PARTS: tl.constexpr = 4 if R >= 128 else 1  # so that not all of C_S, C_I and u are in registers at once
        WIDTH: tl.constexpr = R // PARTS
        parts = (C, C, C, C)
        if PARTS == 4:
            left, right = halves(C, BLOCK_ROWS, R)
            first, second = halves(left, BLOCK_ROWS, R // 2)
            third, fourth = halves(right, BLOCK_ROWS, R // 2)
            parts = (first, second, third, fourth)
        for part in tl.static_range(PARTS):
            some = part * WIDTH + tl.arange(0, WIDTH)
            C_I = parts[part]
            C_S = tl.load(aside + row[:, None] * R + some[None, :]).to(tl.float32)
            u = alpha[:, None] * C_S + (1.0 - alpha)[:, None] * C_I + tl.load(b_f + some)[None, :]  # (labels, WIDTH)
            if OWN:
                w = tl.load(w_o + label[:, None] * R + some[None, :], mask=real[:, None], other=0.0)
            else:
                w = tl.load(w_o + some)[None, :]
            score += tl.sum(tl.maximum(u, 0.0) * w, 1)
            if HIDDEN:
                positive = tl.maximum(u, 0.0).to(hidden.dtype.element_ty)
                tl.store(hidden + place[:, None] * R + some[None, :], positive, mask=real[:, None])
            if TRAINING:
                w = tl.where(u > 0.0, w, 0.0)
                e_S += tl.sum(w * C_S, 1)
                e_I += tl.sum(w * C_I, 1)
                bits = tl.reshape((u > 0.0).to(tl.int32), (BLOCK_ROWS, WIDTH // 32, 32))
                bits = tl.sum(bits << tl.arange(0, 32)[None, None, :], 2)
                group = part * (WIDTH // 32) + tl.arange(0, WIDTH // 32)
                tl.store(signs + place[:, None] * (R // 32) + group[None, :], bits, mask=real[:, None])
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
        tl.debug_barrier()  # the next tile's is put aside in the same place
