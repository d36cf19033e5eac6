"""How trees of FastXML grow and score (Prabhu & Varma 2014, sections 4 and 5), compiled by numba.

A node parts its documents in two. Each side ranks the labels of its documents so that nDCG is best, each document moves
to the side whose ranking suits it better, until none moves; then a sparse linear separator learns to tell the sides
apart, and documents follow it down the tree. A leaf keeps how frequent each label is among its documents.

Sparse rows come as the three arrays of a CSR matrix, `documents` as the rows of a node, and scratch arrays as large as
all features or labels are left as they were found. All compiled code is in this one file: numba's cache is renewed when
the file of a function changes, not when that of a callee does.
"""

import numpy as np
from numba import njit

LEAF = -1
MAX_MOVES = 50  # rounds of documents changing sides; a few suffice
MAX_PASSES = 20  # over the features in learning a separator
TOLERANCE = 0.01  # of the separator: how much of the first pass's violation of optimality may remain

compiled = njit(cache=True, nogil=True)


@compiled
def rank_discounts(sums):
    """Return 1 / log2(1 + rank) of each label when labels are ranked by falling sums: the ranking of best nDCG."""
    order = np.argsort(-sums, kind="mergesort")
    discounts = np.empty(len(sums))
    for rank in range(len(order)):
        discounts[order[rank]] = 1 / np.log2(rank + 2)
    return discounts


@compiled
def distinct(documents, offsets, indices, position):
    """List the distinct columns of these rows as they appear, and write each one's place in the list to `position`.

    `position` holds -1 for every column not listed.
    """
    total = 0
    for document in documents:
        total += offsets[document + 1] - offsets[document]
    found = np.empty(min(total, len(position)), np.int32)
    count = 0
    for document in documents:
        for k in range(offsets[document], offsets[document + 1]):
            if position[indices[k]] < 0:
                position[indices[k]] = count
                found[count] = indices[k]
                count += 1
    return found[:count]


@compiled
def part_documents(documents, sides, pull, offsets, labels, gains, position):
    """Move documents between two sides until each is where the ranking, its own pull added, suits it best.

    Changes `sides` (0 or 1); `position` is scratch, -1 for every label.
    """
    present = distinct(documents, offsets, labels, position)
    for _ in range(MAX_MOVES):
        sums = np.zeros((2, len(present)))
        for i in range(len(documents)):
            for k in range(offsets[documents[i]], offsets[documents[i] + 1]):
                sums[sides[i], position[labels[k]]] += gains[k]
        advantage = rank_discounts(sums[1]) - rank_discounts(sums[0])
        moved = 0
        for i in range(len(documents)):
            better = pull[i]
            for k in range(offsets[documents[i]], offsets[documents[i] + 1]):
                better += gains[k] * advantage[position[labels[k]]]
            if abs(better) > 1e-9 and sides[i] != (better > 0):
                sides[i] = better > 0
                moved += 1
        if moved == 0:
            break
    position[present] = -1


@compiled
def learn_separator(documents, sides, offsets, indices, values, cost, position):
    """Minimise |w| + cost · Σ log(1 + exp(-side · wx)) by coordinate descent: return the features and weights not 0.

    Newton steps on one weight at a time, with a line search; a weight at 0 whose gradient keeps it there is left out of
    the passes that follow (Yuan et al. 2010). `position` is scratch, -1 for every feature.
    """
    present = distinct(documents, offsets, indices, position)
    starts, rows, entries = columns_of(documents, offsets, indices, values, position, len(present))
    position[present] = -1
    weights = np.zeros(len(present))
    margins = np.zeros(len(documents))  # side · wx
    wrong = np.full(len(documents), 0.5)  # 1 / (1 + exp(margin))
    for i in range(len(rows)):
        entries[i] *= 2 * sides[rows[i]] - 1
    active = np.arange(len(present))
    slack, first = np.inf, -1.0
    for _ in range(MAX_PASSES):
        np.random.shuffle(active)
        kept, violation, largest = 0, 0.0, 0.0
        for feature in active:
            span = slice(starts[feature], starts[feature + 1])
            gap, stays = descend(feature, weights, rows[span], entries[span], cost, margins, wrong, slack)
            if stays:
                active[kept] = feature
                kept += 1
                violation += gap
                largest = max(largest, gap)
        active = active[:kept]
        slack = largest / len(documents)
        if first < 0:
            first = violation
        if violation <= TOLERANCE * first:
            break
    chosen = np.flatnonzero(weights)
    return present[chosen], weights[chosen].astype(np.float32)


@compiled
def columns_of(documents, offsets, indices, values, position, width):
    """Turn rows into columns: where each column starts, the rows in it (by place in `documents`), and the values."""
    starts = np.zeros(width + 1, np.int64)
    for document in documents:
        for k in range(offsets[document], offsets[document + 1]):
            starts[position[indices[k]] + 1] += 1
    starts = np.cumsum(starts)
    rows, entries = np.empty(starts[-1], np.int32), np.empty(starts[-1])
    ends = starts.copy()
    for i in range(len(documents)):
        for k in range(offsets[documents[i]], offsets[documents[i] + 1]):
            place = ends[position[indices[k]]]
            rows[place], entries[place] = i, values[k]
            ends[position[indices[k]]] += 1
    return starts, rows, entries


@compiled
def descend(feature, weights, rows, entries, cost, margins, wrong, slack):
    """Improve one weight; return how far it was from optimal, and whether the next passes need look at it."""
    weight, slope, bend = weights[feature], 0.0, 1e-12
    for k in range(len(rows)):
        share = entries[k] * wrong[rows[k]]
        slope -= share
        bend += entries[k] * share * (1 - wrong[rows[k]])
    slope, bend = cost * slope, cost * bend
    if weight == 0:
        gap = max(abs(slope) - 1, 0.0)
        if abs(slope) < 1 - slack:
            return gap, False
    else:
        gap = abs(slope + np.sign(weight))
    if slope + 1 <= bend * weight:
        step = -(slope + 1) / bend
    elif slope - 1 >= bend * weight:
        step = -(slope - 1) / bend
    else:
        step = -weight
    step = min(max(step, -10.0), 10.0)
    promised = slope * step + abs(weight + step) - abs(weight)
    for _ in range(20 if abs(step) > 1e-12 else 0):
        change = abs(weight + step) - abs(weight)
        for k in range(len(rows)):
            margin = margins[rows[k]]
            change += cost * (softplus(-margin - step * entries[k]) - softplus(-margin))
        if change <= 0.01 * promised:
            weights[feature] += step
            for k in range(len(rows)):
                margins[rows[k]] += step * entries[k]
                wrong[rows[k]] = 1 / (1 + np.exp(margins[rows[k]]))
            break
        step, promised = step / 2, promised / 2
    return gap, True


@compiled
def softplus(x):
    """Return log(1 + exp(x)) without overflow."""
    return max(x, 0.0) + np.log1p(np.exp(-abs(x)))


@compiled
def margins_of(documents, features, weights, offsets, indices, values, dense):
    """Return wx of each document; `dense` is scratch, 0 for every feature."""
    for k in range(len(features)):
        dense[features[k]] = weights[k]
    margins = np.zeros(len(documents))
    for i in range(len(documents)):
        for k in range(offsets[documents[i]], offsets[documents[i] + 1]):
            margins[i] += values[k] * dense[indices[k]]
    dense[features] = 0
    return margins


@compiled
def split(documents, x_offsets, x_indices, x_values, y_offsets, y_indices, gains, cost, rounds, scratch):
    """Return each document's margin under a node's separator, and the separator's features and weights."""
    feature_position, dense, label_position = scratch
    sides = np.zeros(len(documents), np.int8)
    sides[np.random.permutation(len(documents))[: len(documents) // 2]] = 1
    margins = np.zeros(len(documents))
    for _ in range(rounds):
        # log(1 + exp(wx)) - log(1 + exp(-wx)) = wx: what the separator's loss says for side 1.
        part_documents(documents, sides, cost * margins, y_offsets, y_indices, gains, label_position)
        found = learn_separator(documents, sides, x_offsets, x_indices, x_values, cost, feature_position)
        margins = margins_of(documents, found[0], found[1], x_offsets, x_indices, x_values, dense)
    return margins, found[0], found[1]


@compiled
def leaf_frequencies(documents, offsets, labels, most, position):
    """Return a leaf's most frequent labels, by falling frequency, and the share of its documents that have each."""
    present = distinct(documents, offsets, labels, position)
    sums = np.zeros(len(present))
    for document in documents:
        for k in range(offsets[document], offsets[document + 1]):
            sums[position[labels[k]]] += 1
    position[present] = -1
    order = np.argsort(-sums, kind="mergesort")[:most]
    return present[order], (sums[order] / len(documents)).astype(np.float32)


@compiled
def grow_tree(
    x_offsets, x_indices, x_values, width, y_offsets, y_indices, gains, labels,
    leaf_documents, leaf_labels, cost, rounds, seed,
):  # fmt: skip
    """Grow one tree: children, then the counts, features and weights of separators, then the same of leaves' labels."""
    np.random.seed(seed)
    count = len(x_offsets) - 1
    documents = np.arange(count)
    scratch = np.full(width, -1, np.int32), np.zeros(width), np.full(labels, -1, np.int32)
    children = np.full((2 * count, 2), LEAF, np.int32)
    weight_counts, label_counts = np.zeros(2 * count, np.int64), np.zeros(2 * count, np.int64)
    features, feature_weights = [np.empty(0, np.int32)], [np.empty(0, np.float32)]
    leaf_ids, leaf_shares = [np.empty(0, np.int32)], [np.empty(0, np.float32)]
    waiting = [(0, count, -1, 0)]  # from, to, parent, side
    nodes = 0
    while waiting:
        start, stop, parent, side = waiting.pop()
        node, own = nodes, documents[start:stop]
        nodes += 1
        if parent >= 0:
            children[parent, side] = node
        if len(own) > leaf_documents:
            margins, chosen, found = split(
                own, x_offsets, x_indices, x_values, y_offsets, y_indices, gains, cost, rounds, scratch
            )
            negative = np.sum(margins < 0)
            if 0 < negative < len(own):
                own[:] = np.concatenate((own[margins < 0], own[margins >= 0]))
                waiting.append((start + negative, stop, node, 1))
                waiting.append((start, start + negative, node, 0))
                weight_counts[node] = len(chosen)
                features.append(chosen)
                feature_weights.append(found)
                continue
        ids, shares = leaf_frequencies(own, y_offsets, y_indices, leaf_labels, scratch[2])
        label_counts[node] = len(ids)
        leaf_ids.append(ids)
        leaf_shares.append(shares)
    return (
        children[:nodes], weight_counts[:nodes], joined(features), joined(feature_weights),
        label_counts[:nodes], joined(leaf_ids), joined(leaf_shares),
    )  # fmt: skip


@compiled
def joined(pieces):
    """Lay arrays end to end."""
    total = 0
    for piece in pieces:
        total += len(piece)
    whole = np.empty(total, pieces[0].dtype)
    start = 0
    for piece in pieces:
        whole[start : start + len(piece)] = piece
        start += len(piece)
    return whole


@compiled
def score_documents(
    offsets, indices, values, width, labels,
    roots, children, weight_offsets, features, weights, label_offsets, leaf_ids, leaf_shares,
):  # fmt: skip
    """Average the leaves of each document over the trees: the three arrays of a CSR matrix."""
    dense, sums, position = np.zeros(width), np.zeros(labels), np.full(labels, -1, np.int32)
    ends = np.zeros(len(offsets), np.int64)
    found, scores = [np.empty(0, np.int32)], [np.empty(0, np.float32)]
    leaves = np.empty(len(roots), np.int64)
    for document in range(len(offsets) - 1):
        for k in range(offsets[document], offsets[document + 1]):
            dense[indices[k]] = values[k]
        for tree in range(len(roots)):
            node = roots[tree]
            while children[node, 0] != LEAF:
                margin = 0.0
                for k in range(weight_offsets[node], weight_offsets[node + 1]):
                    margin += weights[k] * dense[features[k]]
                node = children[node, 1 if margin >= 0 else 0]
            leaves[tree] = node
            for k in range(label_offsets[node], label_offsets[node + 1]):
                sums[leaf_ids[k]] += leaf_shares[k]
        for k in range(offsets[document], offsets[document + 1]):
            dense[indices[k]] = 0
        own = distinct(leaves, label_offsets, leaf_ids, position)
        position[own] = -1
        found.append(own)
        scores.append((sums[own] / len(roots)).astype(np.float32))
        sums[own] = 0
        ends[document + 1] = ends[document] + len(own)
    return joined(scores), joined(found), ends
