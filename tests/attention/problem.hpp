// SPDX-License-Identifier: MIT
/// \file
/// Everything that one call of a case reads, what of it is visible, and parts of it.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "attention/case.hpp"
#include "support/fill.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

template <class T>
struct Problem {
  AttentionShape shape;
  std::uint64_t seed = 0;
  Tensor<T> q, k, v;
  std::optional<Tensor<T>> bias = {};
  std::optional<Tensor<bool>> mask = {};
  std::vector<T> slopes = {};
  std::vector<T> sink = {};
  std::optional<Tensor<T>> beta = {};
  std::optional<Tensor<T>> near_logits = {};
  std::optional<Tensor<T>> far_logits = {};
  std::optional<Tensor<T>> projection = {};
  std::vector<Index> key_lengths = {};
  /// Of rows that end where the rows of k end, which must be said where key lengths are given.
  std::vector<Index> first_positions = {};
  std::vector<Index> cu_q = {};
  std::vector<Index> cu_k = {};

  AllInputs<T> inputs() const {
    AllInputs<T> in{q.view(), k.view(), v.view(), key_lengths, cu_q, cu_k};
    if (!key_lengths.empty()) in.first_positions = first_positions;
    if (bias) in.bias = bias->view();
    if (mask) in.mask = mask->view();
    in.alibi_slopes = slopes;
    in.sink = sink;
    if (beta) in.beta = beta->view();
    if (near_logits) in.near_logits = near_logits->view();
    if (far_logits) in.far_logits = far_logits->view();
    if (projection) in.projection = projection->view();
    return in;
  }
  Index keys_of_batch(Index b) const {
    return key_lengths.empty() ? shape.keys : key_lengths[as_size(b)];
  }
  Shape out_shape() const {
    return {shape.batch, shape.query_heads, shape.queries, shape.value_width};
  }
  Shape row_shape() const { return {shape.batch, shape.query_heads, shape.queries, 1}; }

  /// The same in other layouts, one for all but q, k and v.
  Problem in(const Layout& q_layout, const Layout& k_layout, const Layout& v_layout,
             const Layout& rest) const {
    Problem other{shape, seed, q.in(q_layout), k.in(k_layout), v.in(v_layout)};
    if (bias) other.bias = bias->in(rest);
    if (mask) other.mask = mask->in(rest);
    if (beta) other.beta = beta->in(rest);
    if (near_logits) other.near_logits = near_logits->in(rest);
    if (far_logits) other.far_logits = far_logits->in(rest);
    if (projection) other.projection = projection->in(rest);
    other.slopes = slopes;
    other.sink = sink;
    other.key_lengths = key_lengths;
    other.first_positions = first_positions;
    other.cu_q = cu_q;
    other.cu_k = cu_k;
    return other;
  }
};

struct Fills {
  Fill q, k, v;
};

/// Gaussian data; a tensor's values depend on the seed alone, not on the sizes.
inline Fills gaussian_fills(std::uint64_t seed) {
  return {gaussian(seed), gaussian(seed + 100), gaussian(seed + 200)};
}

/// The extents of a tensor of these dimensions of the logits.
inline Shape logits_shape(const AttentionShape& s, const std::string& dims) {
  const auto extent = [&](char dim, Index n) {
    return dims.find(dim) == std::string::npos ? 1 : n;
  };
  return {extent('b', s.batch), extent('h', s.query_heads), extent('q', s.queries),
          extent('k', s.keys)};
}

/// The contents of a case's bias and mask.
inline Fill bias_fill(std::uint64_t seed, const Extras& extras) {
  const bool hides = extras.bias.find('k') != std::string::npos;
  return [=](Index b, Index h, Index i, Index j) {
    const std::uint64_t bits = hash(seed + 300, b, h, i, j);
    if (hides && bits % 6 == 0) return -std::numeric_limits<double>::infinity();
    return 4 * uniform(bits) - 2;
  };
}
inline Fill mask_fill(std::uint64_t seed) {
  return [=](Index b, Index h, Index i, Index j) {
    return hash(seed + 400, b, h, i, j) % 4 == 0 ? 0.0 : 1.0;
  };
}

/// Rates of the delta rule.
inline Fill beta_fill(std::uint64_t seed) {
  return [=](Index b, Index h, Index n, Index d) {
    return 0.05 + 0.9 * uniform(hash(seed + 700, b, h, n, d));
  };
}

/// Logits of the blend of near and far field, of these dimensions of "hd".
template <class T>
std::optional<Tensor<T>> make_blend_logits(const AttentionShape& s, const std::string& dims,
                                           std::uint64_t seed) {
  if (dims.empty()) return {};
  const auto extent = [&](char dim, Index n) {
    return dims.find(dim) == std::string::npos ? 1 : n;
  };
  Tensor<T> made({1, extent('h', s.query_heads), 1, extent('d', s.value_width)});
  made.fill(gaussian(seed));
  return made;
}

template <class T>
Problem<T> make_problem(const Case<T>& op, AttentionShape s, std::uint64_t seed,
                        const Fills& fills) {
  s.keys = std::max(s.keys, op.least_keys);
  if (op.is_square) s.queries = s.keys = std::max(s.queries, s.keys);
  Problem<T> made{s, seed, Tensor<T>({s.batch, s.query_heads, s.queries, s.width}),
                  Tensor<T>({s.batch, s.key_heads, s.keys, s.width}),
                  Tensor<T>({s.batch, s.key_heads, s.keys, s.value_width})};
  made.q.fill(fills.q);
  made.k.fill(fills.k);
  made.v.fill(fills.v);
  if (!op.extras.bias.empty()) {
    made.bias = Tensor<T>(logits_shape(s, op.extras.bias));
    made.bias->fill(bias_fill(seed, op.extras));
  }
  if (!op.extras.mask.empty()) {
    made.mask = Tensor<bool>(logits_shape(s, op.extras.mask));
    made.mask->fill(mask_fill(seed));
  }
  for (Index h = 0; h < s.query_heads; ++h) {
    if (op.extras.alibi) made.slopes.push_back(static_cast<T>(0.3 / static_cast<double>(h + 1)));
    if (op.extras.sink) made.sink.push_back(static_cast<T>(gaussian(seed + 500)(0, h, 0, 0)));
  }
  if (op.extras.beta) {
    made.beta = Tensor<T>({s.batch, s.key_heads, s.keys, 1});
    made.beta->fill(beta_fill(seed));
  }
  if (op.extras.features > 0) {
    made.projection = Tensor<T>({1, 1, op.extras.features, s.width});
    made.projection->fill(gaussian(seed + 1000));
  }
  if (op.options.alignment == fovea::CausalAlignment::bottom_right) {
    made.first_positions.assign(as_size(s.batch), s.keys - s.queries);
  }
  made.near_logits = make_blend_logits<T>(s, op.extras.near_logits, seed + 800);
  made.far_logits = make_blend_logits<T>(s, op.extras.far_logits, seed + 900);
  return made;
}

template <class T>
Problem<T> make_problem(const Case<T>& op, const AttentionShape& shape, std::uint64_t seed = 1) {
  return make_problem(op, shape, seed, gaussian_fills(seed));
}

/// The sequences of a packed problem: lengths of their queries, and of their keys.
template <class T>
Problem<T> make_packed(const Case<T>& op, AttentionShape shape, const std::vector<Index>& queries,
                       const std::vector<Index>& keys, std::uint64_t seed = 1) {
  std::vector<Index> cu_q = {0};
  std::vector<Index> cu_k = {0};
  for (std::size_t s = 0; s < queries.size(); ++s) {
    const Index most = std::max(queries[s], keys[s]);
    cu_q.push_back(cu_q.back() + (op.is_square ? most : queries[s]));
    cu_k.push_back(cu_k.back() + (op.is_square ? most : keys[s]));
  }
  shape.batch = 1;
  shape.queries = cu_q.back();
  shape.keys = cu_k.back();
  Problem<T> made = make_problem(op, shape, seed);
  made.cu_q = cu_q;
  made.cu_k = cu_k;
  return made;
}

/// One batch and one head.
inline AttentionShape sizes(Index queries, Index keys, Index width, Index value_width) {
  return {1, 1, 1, queries, keys, width, value_width};
}

/// Whether a row sees a key: pattern, sequence, length, mask and bias. In a packed problem both are
/// rows of the tensors.
template <class T>
bool sees(const Case<T>& op, const Problem<T>& p, Index b, Index h, Index row, Index j) {
  if (j >= p.keys_of_batch(b)) return false;
  const Shape at = {b, h, row, j};
  if (p.mask && !broadcast_at(p.mask->view(), at)) return false;
  if (p.bias && broadcast_at(p.bias->view(), at) == -std::numeric_limits<T>::infinity()) {
    return false;
  }
  if (p.cu_q.empty() && op.is_square) {
    const Index tokens = p.keys_of_batch(b);
    return op.visible(Pair{b, h, row, j, tokens, tokens});
  }
  if (p.cu_q.empty()) {
    return op.visible(Pair{b, h, row, j, p.shape.queries, p.shape.keys, p.keys_of_batch(b)});
  }
  Index s = 0;
  while (row >= p.cu_q[as_size(s + 1)]) ++s;
  const Index first_query = p.cu_q[as_size(s)];
  const Index first_key = p.cu_k[as_size(s)];
  const Index end_key = p.cu_k[as_size(s + 1)];
  return j >= first_key && j < end_key &&
         op.visible(Pair{s, h, row - first_query, j - first_key,
                         p.cu_q[as_size(s + 1)] - first_query, end_key - first_key});
}

template <class T>
bool sees_any(const Case<T>& op, const Problem<T>& p, Index b, Index h, Index row) {
  for (Index j = 0; j < p.shape.keys; ++j) {
    if (sees(op, p, b, h, row, j)) return true;
  }
  return false;
}

/// Query rows [first, first + queries) and keys [first_key, first_key + keys), without lengths.
template <class T>
AllInputs<T> part_of(const AllInputs<T>& in, Index first, Index queries, Index first_key,
                     Index keys) {
  AllInputs<T> part = in;
  part.key_lengths = part.cu_seqlens_q = part.cu_seqlens_k = part.first_positions = {};
  part.q = cut(in.q, 2, first, queries);
  part.k = cut(in.k, 2, first_key, keys);
  part.v = cut(in.v, 2, first_key, keys);
  part.bias = cut_logits(cut_logits(in.bias, 2, first, queries), 3, first_key, keys);
  part.mask = cut_logits(cut_logits(in.mask, 2, first, queries), 3, first_key, keys);
  if (!in.beta.empty()) part.beta = cut(in.beta, 2, first_key, keys);
  return part;
}

/// Batch b and head h alone. \param lengths that of the keys of batch b, or empty
template <class T>
AllInputs<T> head_of(const AllInputs<T>& in, Index b, Index h, fovea::IndexSpan lengths) {
  AllInputs<T> part = in;
  const Index key_head = h / (in.q.heads() / in.k.heads());
  part.q = cut(cut(in.q, 0, b, 1), 1, h, 1);
  part.k = cut(cut(in.k, 0, b, 1), 1, key_head, 1);
  part.v = cut(cut(in.v, 0, b, 1), 1, key_head, 1);
  part.bias = cut_logits(cut_logits(in.bias, 0, b, 1), 1, h, 1);
  part.mask = cut_logits(cut_logits(in.mask, 0, b, 1), 1, h, 1);
  if (!in.beta.empty()) part.beta = cut(cut(in.beta, 0, b, 1), 1, key_head, 1);
  part.near_logits = cut_logits(in.near_logits, 1, h, 1);
  part.far_logits = cut_logits(in.far_logits, 1, h, 1);
  part.key_lengths = lengths;
  if (!in.first_positions.empty()) part.first_positions = in.first_positions.subspan(as_size(b), 1);
  if (!in.alibi_slopes.empty()) part.alibi_slopes = in.alibi_slopes.subspan(as_size(h), 1);
  if (!in.sink.empty()) part.sink = in.sink.subspan(as_size(h), 1);
  return part;
}

template <class T>
std::string describe(const Problem<T>& p) {
  const AttentionShape& s = p.shape;
  std::ostringstream text;
  text << "B " << s.batch << ", Hq " << s.query_heads << ", Hk " << s.key_heads << ", Nq "
       << s.queries << ", Nk " << s.keys << ", D " << s.width << ", Dv " << s.value_width
       << ", seed " << p.seed;
  const auto add = [&](const char* name, const std::vector<Index>& numbers) {
    if (!numbers.empty()) text << ", " << name;
    for (const Index n : numbers) text << " " << n;
  };
  add("lengths", p.key_lengths);
  add("cu_q", p.cu_q);
  add("cu_k", p.cu_k);
  return text.str();
}

}  // namespace fovea_test
