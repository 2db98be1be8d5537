// SPDX-License-Identifier: MIT
/// \file
/// The checks that every operator makes of its tensors before anything is written.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "fovea/attention/attention.hpp"
#include "fovea/core/overlap.hpp"
#include "fovea/simd/isa.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Refuses `tensor` unless its dimension d is as expected; `whose` says where that comes from.
inline void check_extent(const char* op, const char* tensor, const Shape& shape, std::size_t d,
                         Index expected, std::string_view whose) {
  if (shape[d] == expected) return;
  refuse_extent(op, tensor, shape, d, std::to_string(expected).append(", ").append(whose));
}

}  // namespace detail

/// q, k, v and the key lengths must agree. \throws std::invalid_argument, also as `isa_level`
template <class T>
void check_inputs(const char* op, const Inputs<T>& inputs) {
  static_cast<void>(isa_level());
  const Shape& q = inputs.q.shape();
  const Shape& k = inputs.k.shape();
  const Shape& v = inputs.v.shape();
  if (inputs.q.is_none() && (k[0] != 0 || v[0] != 0 || k[3] != 0)) {
    refuse(op, "q", "missing", "what attends to k and v");
  }
  detail::check_extent(op, "k", k, 0, q[0], "the batch of q");
  detail::check_extent(op, "v", v, 0, q[0], "the batch of q");
  if (k[1] == 0 ? q[1] != 0 : q[1] % k[1] != 0) {
    refuse_extent(op, "k", k, 1, "a divisor of " + std::to_string(q[1]) + ", the heads of q");
  }
  detail::check_extent(op, "v", v, 1, k[1], "the heads of k");
  detail::check_extent(op, "k", k, 3, q[3], "the width of q");
  detail::check_extent(op, "v", v, 2, k[2], "the rows of k");

  const auto lengths = static_cast<Index>(inputs.key_lengths.size());
  if (lengths != 0 && lengths != q[0]) {
    refuse(op, "the number of key_lengths", std::to_string(lengths),
           std::to_string(q[0]) + ", the batch of q, or 0");
  }
  for (std::size_t b = 0; b < inputs.key_lengths.size(); ++b) {
    const Index length = inputs.key_lengths[b];
    if (length < 0 || length > k[2]) {
      refuse(op, "key_lengths[" + std::to_string(b) + "]", std::to_string(length),
             "0 to " + std::to_string(k[2]) + ", the rows of k");
    }
  }
  // Positions are sums of row counts, and scratch is some hundred rows of q and v.
  constexpr Index most_rows = (std::numeric_limits<Index>::max)() / 8;
  constexpr Index most_width = (std::numeric_limits<Index>::max)() / (Index{1} << 16);
  for (const auto& [tensor, shape] : {std::pair{"q", q}, std::pair{"k", k}, std::pair{"v", v}}) {
    if (shape[2] > most_rows) {
      refuse(op, std::string("rows of ") + tensor, std::to_string(shape[2]),
             "at most " + std::to_string(most_rows));
    }
    if (shape[3] > most_width) {
      refuse(op, std::string("width of ") + tensor, std::to_string(shape[3]),
             "at most " + std::to_string(most_width));
    }
  }
}

namespace detail {

/// The ends of packed sequences must ascend from 0 to the rows of their tensor.
inline void check_cu_seqlens(const char* op, const std::string& name, std::span<const Index> ends,
                             Index rows, const std::string& tensor) {
  for (std::size_t s = 0; s < ends.size(); ++s) {
    const std::string what = name + "[" + std::to_string(s) + "]";
    const std::string got = std::to_string(ends[s]);
    if (s == 0 && ends[s] != 0) refuse(op, what, got, "0, where the first sequence begins");
    if (s > 0 && ends[s] < ends[s - 1]) {
      refuse(op, what, got, "at least " + std::to_string(ends[s - 1]) + ": the ends must ascend");
    }
    if (ends[s] > rows || (s + 1 == ends.size() && ends[s] != rows)) {
      refuse(op, what, got,
             (s + 1 == ends.size() ? "" : "at most ") + std::to_string(rows) + ", the rows of " +
                 tensor);
    }
  }
}

/// Every extent must be that of the logits, or 1.
template <class U>
void check_broadcast(const char* op, const char* tensor, const View<U>& x, const Shape& logits) {
  constexpr std::array<const char*, 4> whose = {"the batch of q", "the heads of q", "the rows of q",
                                                "the rows of k"};
  if (x.is_none()) return;
  for (std::size_t d = 0; d < 4; ++d) {
    if (x.shape()[d] == 1 || x.shape()[d] == logits[d]) continue;
    refuse(op, std::string(kDimensionNames[d]) + " of " + tensor, std::to_string(x.shape()[d]),
           "1 or " + std::to_string(logits[d]) + ", " + whose[d]);
  }
}

/// Refuses a tensor that the operator has no use for. \param why which operator has one
template <class U>
void check_absent(const char* op, const char* tensor, const View<U>& x, const char* why) {
  if (!x.is_none()) refuse(op, tensor, "given", std::string("none: ") + why);
}

/// Refuses the sketch that chooses keys, and what goes with it.
template <class T>
void check_no_sketch(const char* op, const Inputs<T>& inputs, const Saved<T>& saved) {
  constexpr const char* why = "it is of SmartBirdAttention";
  check_absent(op, "sketch_q", inputs.sketch_q, why);
  check_absent(op, "sketch_k", inputs.sketch_k, why);
  check_absent(op, "draws", inputs.draws, why);
  check_absent(op, "the saved indices", saved.indices, why);
}

/// Refuses the indices of queries that predict a graph.
template <class T>
void check_no_graph(const char* op, const Inputs<T>& inputs) {
  check_absent(op, "dominant", inputs.dominant, "it is of FsatAttention");
}

/// Refuses what chooses keys.
template <class T>
void check_no_choice(const char* op, const Inputs<T>& inputs, const Saved<T>& saved) {
  check_no_sketch(op, inputs, saved);
  check_no_graph(op, inputs);
}

/// Refuses lists of keys, and what chooses them.
template <class T>
void check_no_lists(const char* op, const Inputs<T>& inputs, const Saved<T>& saved) {
  check_absent(op, "indices", inputs.indices, "it is of IndexedAttention");
  check_no_choice(op, inputs, saved);
}

template <class U>
void check_per_head(const char* op, const char* name, std::span<const U> x, Index heads) {
  const auto count = static_cast<Index>(x.size());
  if (count != 0 && count != heads) {
    refuse(op, std::string("the number of ") + name, std::to_string(count),
           std::to_string(heads) + ", the heads of q, or 0");
  }
}

}  // namespace detail

/// The sequences of packed tensors. \pre check_inputs passed. \throws std::invalid_argument
template <class T>
void check_packing(const char* op, const Inputs<T>& inputs) {
  const auto& cu_q = inputs.cu_seqlens_q;
  const auto& cu_k = inputs.cu_seqlens_k;
  if (cu_q.empty() && cu_k.empty()) return;
  if (cu_q.empty()) refuse(op, "cu_seqlens_q", "empty", "what cu_seqlens_k goes with");
  if (inputs.q.batch() != 1) {
    refuse(op, "batch of q", std::to_string(inputs.q.batch()), "1, since cu_seqlens_q is given");
  }
  if (!inputs.key_lengths.empty()) {
    refuse(op, "the number of key_lengths", std::to_string(inputs.key_lengths.size()),
           "0, since cu_seqlens_q is given");
  }
  if (!cu_k.empty() && cu_k.size() != cu_q.size()) {
    refuse(op, "the number of cu_seqlens_k", std::to_string(cu_k.size()),
           std::to_string(cu_q.size()) + ", as of cu_seqlens_q");
  }
  detail::check_cu_seqlens(op, "cu_seqlens_q", cu_q, inputs.q.rows(), "q");
  if (cu_k.empty()) {
    detail::check_cu_seqlens(op, "cu_seqlens_q", cu_q, inputs.k.rows(),
                             "k, since there is no cu_seqlens_k");
  }
  detail::check_cu_seqlens(op, "cu_seqlens_k", cu_k, inputs.k.rows(), "k");
}

/// What changes the logits; what softmax attention has no use for is refused.
/// \pre check_inputs passed. \throws std::invalid_argument
template <class T>
void check_logit_inputs(const char* op, const Inputs<T>& inputs, const Saved<T>& saved) {
  detail::check_no_lists(op, inputs, saved);
  detail::check_absent(op, "beta", inputs.beta, "it is of the delta rule");
  detail::check_absent(op, "near_logits", inputs.near_logits, "it is of FMM attention");
  detail::check_absent(op, "far_logits", inputs.far_logits, "it is of FMM attention");
  const Shape logits = {inputs.q.batch(), inputs.q.heads(), inputs.q.rows(), inputs.k.rows()};
  detail::check_broadcast(op, "bias", inputs.bias, logits);
  detail::check_broadcast(op, "mask", inputs.mask, logits);
  detail::check_per_head(op, "alibi_slopes", inputs.alibi_slopes, logits[1]);
  detail::check_per_head(op, "sinks", inputs.sink, logits[1]);
  for (std::size_t h = 0; h < inputs.alibi_slopes.size(); ++h) {
    if (std::isfinite(inputs.alibi_slopes[h])) continue;
    refuse(op, "alibi_slopes[" + std::to_string(h) + "]", to_string(inputs.alibi_slopes[h]),
           "finite");
  }
}

namespace detail {

/// One number per head as a view; of no numbers no tensor.
template <class T>
View<T> head_view(std::span<T> x) {
  return x.empty() ? View<T>{} : View<T>{x.data(), {1, static_cast<Index>(x.size()), 1, 1}};
}

/// Refuses what changes the logits of softmax attention.
template <class T>
void check_no_logit_inputs(const char* op, const Inputs<T>& inputs, const char* why) {
  check_absent(op, "bias", inputs.bias, why);
  check_absent(op, "mask", inputs.mask, why);
  // An empty span may have an address.
  check_absent(op, "alibi_slopes", head_view(inputs.alibi_slopes), why);
  check_absent(op, "sink", head_view(inputs.sink), why);
}

/// Refuses x if it shares an element with another tensor.
template <class T, class U>
void check_apart(const char* op, const char* tensor, const View<T>& x, const char* name,
                 const View<U>& other) {
  if (!shares_elements(x, other)) return;
  refuse(op, tensor, std::string("in the memory of ") + name, "memory of its own");
}

}  // namespace detail

/// What is written must have the shape, distinct elements, and share none with an input.
/// \throws std::invalid_argument
template <class U, class T>
void check_output(const char* op, const char* tensor, const View<U>& x, const Inputs<T>& inputs,
                  const Shape& expected) {
  if (x.shape() != expected) {
    const std::string whose = "as the inputs make it " + to_string(expected);
    for (std::size_t d = 0; d < 4; ++d) {
      detail::check_extent(op, tensor, x.shape(), d, expected[d], whose);
    }
  }
  for (std::size_t d = 0; d < 4; ++d) {
    if (x.strides()[d] < 0 && x.shape()[d] > 1) {
      refuse(op, std::string("stride of ") + kDimensionNames[d] + " of " + tensor,
             std::to_string(x.strides()[d]), "at least 0 in a tensor that is written");
    }
  }
  if (!has_distinct_elements(x)) {
    refuse(op, std::string("the layout of ") + tensor,
           "strides " + to_string(x.strides()) + " for " + to_string(x.shape()),
           "strides that give each element its own place");
  }
  detail::check_apart(op, tensor, x, "q", inputs.q);
  detail::check_apart(op, tensor, x, "k", inputs.k);
  detail::check_apart(op, tensor, x, "v", inputs.v);
  detail::check_apart(op, tensor, x, "bias", inputs.bias);
  detail::check_apart(op, tensor, x, "mask", inputs.mask);
  detail::check_apart(op, tensor, x, "sink", detail::head_view(inputs.sink));
  detail::check_apart(op, tensor, x, "alibi_slopes", detail::head_view(inputs.alibi_slopes));
  detail::check_apart(op, tensor, x, "beta", inputs.beta);
  detail::check_apart(op, tensor, x, "near_logits", inputs.near_logits);
  detail::check_apart(op, tensor, x, "far_logits", inputs.far_logits);
  detail::check_apart(op, tensor, x, "indices", inputs.indices);
  detail::check_apart(op, tensor, x, "sketch_q", inputs.sketch_q);
  detail::check_apart(op, tensor, x, "sketch_k", inputs.sketch_k);
  detail::check_apart(op, tensor, x, "draws", inputs.draws);
  detail::check_apart(op, tensor, x, "dominant", inputs.dominant);
}

/// A tensor must have the shape of the output. \pre check_inputs passed
/// \throws std::invalid_argument
template <class T>
void check_rows(const char* op, const char* tensor, const Inputs<T>& inputs,
                const View<const T>& x) {
  const Shape expected = {inputs.q.batch(), inputs.q.heads(), inputs.q.rows(), inputs.v.width()};
  const std::string whose = "as the inputs make it " + to_string(expected);
  for (std::size_t d = 0; d < 4; ++d) {
    detail::check_extent(op, tensor, x.shape(), d, expected[d], whose);
  }
}

/// The lse that a backward pass reads. \pre check_inputs passed   \throws std::invalid_argument
template <class T>
void check_lse(const char* op, const Inputs<T>& inputs, const Saved<T>& saved) {
  const Shape rows = {inputs.q.batch(), inputs.q.heads(), inputs.q.rows(), 1};
  if (saved.lse.is_none()) {
    if (rows[0] * rows[1] * rows[2] != 0)
      refuse(op, "lse", "missing", "the lse that forward saved");
    return;
  }
  const std::string whose = "as the inputs make it " + to_string(rows);
  for (std::size_t d = 0; d < 4; ++d) {
    detail::check_extent(op, "lse", saved.lse.shape(), d, rows[d], whose);
  }
}

/// The gradients that are asked for must have the shapes of what they are gradients of, and memory
/// of their own. \pre check_inputs passed   \throws std::invalid_argument
template <class T>
void check_grads(const char* op, const Inputs<T>& inputs, const View<const T>& out,
                 const Saved<T>& saved, const View<const T>& d_out, const Grads<T>& grads) {
  const auto check_input = [&](const char* name, const auto& grad, const auto& input) {
    if (grad.is_none() || !input.is_none()) return;
    refuse(op, std::string("the gradient of ") + name, "asked for", std::string("a ") + name);
  };
  check_input("bias", grads.bias, inputs.bias);
  check_input("beta", grads.beta, inputs.beta);
  check_input("near_logits", grads.near_logits, inputs.near_logits);
  check_input("far_logits", grads.far_logits, inputs.far_logits);
  check_input("dominant", grads.dominant, inputs.dominant);
  const auto sinks = static_cast<Index>(inputs.sink.size());
  if (!grads.sink.empty() && static_cast<Index>(grads.sink.size()) != sinks) {
    refuse(op, "the number of sinks in the gradients", std::to_string(grads.sink.size()),
           std::to_string(sinks) + ", those of the inputs");
  }
  struct Named {
    const char* name;
    View<T> grad;
    Shape shape;
  };
  const std::array<Named, 9> all = {
      {{"the gradient of q", grads.q, inputs.q.shape()},
       {"the gradient of k", grads.k, inputs.k.shape()},
       {"the gradient of v", grads.v, inputs.v.shape()},
       {"the gradient of bias", grads.bias, inputs.bias.shape()},
       {"the gradient of beta", grads.beta, inputs.beta.shape()},
       {"the gradient of near_logits", grads.near_logits, inputs.near_logits.shape()},
       {"the gradient of far_logits", grads.far_logits, inputs.far_logits.shape()},
       {"the gradient of dominant", grads.dominant, inputs.dominant.shape()},
       {"the gradient of sink", detail::head_view(grads.sink), {1, sinks, 1, 1}}}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [name, grad, shape] = all[i];
    if (grad.is_none()) continue;
    check_output(op, name, grad, inputs, shape);
    detail::check_apart(op, name, grad, "out", out);
    detail::check_apart(op, name, grad, "d_out", d_out);
    detail::check_apart(op, name, grad, "lse", saved.lse);
    for (std::size_t j = 0; j < i; ++j) {
      detail::check_apart(op, name, grad, all[j].name, all[j].grad);
    }
  }
}

FOVEA_NAMESPACE_END
