// SPDX-License-Identifier: MIT
/// \file
/// The tensor checks that every operator makes before anything is written.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fovea/attention/attention.hpp"
#include "fovea/core/tensor_check.hpp"
#include "fovea/patterns/pattern.hpp"
#include "fovea/simd/isa.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The part of any family's inputs that the checks read. Not a template, so that the checks are not
/// templates either.
struct InputShapes {
  Shape q;
  Shape k;
  Shape v;
  bool has_q;
  IndexSpan key_lengths;
  IndexSpan cu_seqlens_q = {};
  IndexSpan cu_seqlens_k = {};
  IndexSpan first_positions = {};

  template <AnyInputs In>
  // NOLINTNEXTLINE(google-explicit-constructor): all inputs have these
  InputShapes(const In& in)
      : q(in.q.shape()),
        k(in.k.shape()),
        v(in.v.shape()),
        has_q(!in.q.empty()),
        key_lengths(in.key_lengths) {
    if constexpr (requires { in.cu_seqlens_q; }) {
      cu_seqlens_q = in.cu_seqlens_q;
      cu_seqlens_k = in.cu_seqlens_k;
    }
    if constexpr (requires { in.first_positions; }) first_positions = in.first_positions;
  }
};

/// A tensor of the inputs, gradients or saved results.
struct NamedTensor {
  const char* name = "";
  TensorLayout layout = {};
  bool is_span = false;  ///< one number for each head, counts as [1, heads, 1, 1]
};

/// All tensors of a struct that has `for_each_tensor`, whatever their types.
class TensorList {
 public:
  template <class X>
  // NOLINTNEXTLINE(google-explicit-constructor): all inputs, gradients and saved tensors are lists
  TensorList(const X& tensors) {
    tensors.for_each_tensor([&](const char* name, const auto& x) { add(name, x); });
  }

  const NamedTensor* begin() const { return all_.data(); }
  const NamedTensor* end() const { return all_.data() + count_; }

  /// The tensor of that name; an empty layout if there is none.
  TensorLayout named(std::string_view wanted) const {
    for (const NamedTensor& x : *this) {
      if (x.name == wanted) return x.layout;
    }
    return {};
  }

 private:
  template <class T>
  void add(const char* name, const View<T>& x) {
    all_.at(count_++) = {name, x};
  }
  template <class T>
  void add(const char* name, std::span<T> x) {
    const View<T> numbers =
        x.empty() ? View<T>{} : View<T>{x.data(), {1, static_cast<Index>(x.size()), 1, 1}};
    all_.at(count_++) = {name, numbers, true};
  }

  std::array<NamedTensor, 12> all_;  // more than any struct has
  std::size_t count_ = 0;
};

/// Refuses `tensor` unless it has the shape implied by the inputs.
FOVEA_COLD inline void check_made_shape(const char* op, const char* tensor, const Shape& shape,
                                        const Shape& expected) {
  if (shape == expected) return;
  check_extents(op, tensor, shape, expected,
                expected == Shape{} ? "since the inputs are missing or were passed without memory"
                                    : "to match the inputs");
}

}  // namespace detail

/// Checks that q, k, v and the key lengths agree with each other.
/// \throws std::invalid_argument if they do not, and as `isa_level` does
FOVEA_COLD inline void check_inputs(const char* op, const detail::InputShapes& inputs) {
  static_cast<void>(isa_level());
  const Shape& q = inputs.q;
  const Shape& k = inputs.k;
  const Shape& v = inputs.v;
  if (!inputs.has_q && (k[0] != 0 || v[0] != 0 || k[3] != 0)) {
    refuse_missing(op, "q");
  }
  detail::check_extent(op, "k", k, 0, q[0], "the batch of q");
  detail::check_extent(op, "v", v, 0, q[0], "the batch of q");
  if (k[1] == 0 ? q[1] != 0 : q[1] % k[1] != 0) {
    refuse_extent(op, "k", k, 1, "a divisor of the " + extent_text(q, 1) + " of q");
  }
  detail::check_extent(op, "v", v, 1, k[1], "the heads of k");
  detail::check_extent(op, "k", k, 3, q[3], "the width of q");
  detail::check_extent(op, "v", v, 2, k[2], "the rows of k");

  detail::check_key_lengths(op, inputs.key_lengths, q[0], "q", k[2], "k");
  // Positions are sums of row counts, and scratch is a few hundred rows of q and v.
  constexpr Index most_rows = (std::numeric_limits<Index>::max)() / 8;
  constexpr Index most_width = (std::numeric_limits<Index>::max)() / (Index{1} << 16);
  for (const auto& [tensor, shape] : {std::pair{"q", q}, std::pair{"k", k}, std::pair{"v", v}}) {
    if (shape[2] > most_rows) {
      refuse_extent(op, tensor, shape, 2, "at most " + std::to_string(most_rows));
    }
    if (shape[3] > most_width) {
      refuse_extent(op, tensor, shape, 3, "at most " + std::to_string(most_width));
    }
  }
}

namespace detail {

/// Checks that the ends of packed sequences ascend from 0 to their tensor's number of rows.
FOVEA_COLD inline void check_cu_seqlens(const char* op, const std::string& name, IndexSpan ends,
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

/// Checks that every extent equals that of the logits or is 1, or that there are columns for all
/// visible keys.
/// \param keys the tensor whose rows are the logits' columns
/// \param visible the largest key length, or the logits' columns
FOVEA_COLD inline void check_broadcast(const char* op, const char* tensor, const TensorLayout& x,
                                       const Shape& logits, const char* keys, Index visible) {
  const std::array<const char*, 4> whose = {"the batch of q", "the heads of q", "the rows of q",
                                            keys};
  if (x.empty()) return;
  for (std::size_t d = 0; d < 4; ++d) {
    const Index extent = x.shape[d];
    const Index least = d == 3 ? (std::max)(visible, Index{1}) : logits[d];
    if (extent == 1 || extent == logits[d] || (extent >= least && extent < logits[d])) continue;
    std::string expected = "1 or " + std::to_string(logits[d]) + ", " + whose[d];
    if (least < logits[d]) {
      expected += ", or at least " + std::to_string(least) + ", the largest of key_lengths";
    }
    refuse_extent(op, tensor, x.shape, d, expected);
  }
}

/// Checks that there is one number for each query head, or none at all.
FOVEA_COLD inline void check_per_head(const char* op, const char* name, std::size_t numbers,
                                      Index heads) {
  const auto count = static_cast<Index>(numbers);
  if (count != 0 && count != heads) {
    refuse(op, std::string("the number of ") + name, std::to_string(count),
           std::to_string(heads) + ", the heads of q, or 0");
  }
}

}  // namespace detail

/// Checks the offsets of packed sequences.
/// \pre check_inputs passed
/// \throws std::invalid_argument
FOVEA_COLD inline void check_packing(const char* op, const detail::InputShapes& inputs) {
  const auto& cu_q = inputs.cu_seqlens_q;
  const auto& cu_k = inputs.cu_seqlens_k;
  if (cu_q.empty() && cu_k.empty()) return;
  if (cu_q.empty()) refuse_missing(op, "cu_seqlens_q", "cu_seqlens_k is given");
  if (inputs.q[0] != 1) {
    refuse_extent(op, "q", inputs.q, 0, "1, since cu_seqlens_q is given");
  }
  if (!inputs.key_lengths.empty()) {
    refuse_given(op, "key_lengths", "cu_seqlens_q determines the lengths");
  }
  if (!cu_k.empty() && cu_k.size() != cu_q.size()) {
    refuse(op, "the number of cu_seqlens_k", std::to_string(cu_k.size()),
           std::to_string(cu_q.size()) + ", the number of cu_seqlens_q");
  }
  detail::check_cu_seqlens(op, "cu_seqlens_q", cu_q, inputs.q[2], "q");
  if (cu_k.empty()) {
    detail::check_cu_seqlens(op, "cu_seqlens_q", cu_q, inputs.k[2],
                             "k, since there is no cu_seqlens_k");
  }
  detail::check_cu_seqlens(op, "cu_seqlens_k", cu_k, inputs.k[2], "k");
}

/// Checks the positions given in the inputs.
/// \pre check_inputs and check_packing passed
/// \throws std::invalid_argument
FOVEA_COLD inline void check_first_positions(const char* op, const detail::InputShapes& inputs) {
  const IndexSpan given = inputs.first_positions;
  if (given.empty()) return;
  const bool packed = !inputs.cu_seqlens_q.empty();
  const Index count = packed ? static_cast<Index>(inputs.cu_seqlens_q.size()) - 1 : inputs.q[0];
  if (static_cast<Index>(given.size()) != count) {
    refuse(op, "the number of first_positions", std::to_string(given.size()),
           std::to_string(count) + (packed ? ", the packed sequences" : ", the batch of q") +
               ", or 0");
  }
  for (std::size_t s = 0; s < given.size(); ++s) {
    if (given[s] >= -kFarPosition / 4 && given[s] <= kFarPosition / 4) continue;
    refuse(op, "first_positions[" + std::to_string(s) + "]", std::to_string(given[s]),
           "between -" + std::to_string(kFarPosition / 4) + " and " +
               std::to_string(kFarPosition / 4));
  }
}

/// Refuses an ambiguous call: query rows aligned with the end of k's rows, although their sequence
/// has fewer keys.
/// \param knows_positions called if needed: whether what a row sees depends on its position \pre
/// check_first_positions passed \throws std::invalid_argument
FOVEA_COLD inline void check_alignment(const char* op, const detail::InputShapes& inputs,
                                       CausalAlignment alignment,
                                       FunctionRef<bool()> knows_positions) {
  const Index queries = inputs.q[2];
  const Index keys = inputs.k[2];
  if (alignment != CausalAlignment::bottom_right || queries == keys) return;
  if (queries == 0 || !inputs.first_positions.empty()) return;
  for (std::size_t b = 0; b < inputs.key_lengths.size(); ++b) {
    const Index length = inputs.key_lengths[b];
    if (length == keys) continue;
    if (!knows_positions()) return;
    const std::string rows = std::to_string(queries);
    refuse(op, "alignment",
           "bottom_right, by which the " + rows + " rows of q end at row " + std::to_string(keys) +
               " of k, though key_lengths[" + std::to_string(b) + "] is " + std::to_string(length),
           "CausalAlignment::key_length, by which they end at key " + std::to_string(length) +
               ", or first_positions, if row 0 has position " + std::to_string(keys - queries) +
               "; top_left is also accepted, and so are as many rows of q as of k");
  }
}

/// Checks what modifies the logits of softmax attention: bias, mask, ALiBi slopes and sink.
/// \param sequence the sequence's number of keys, if q, k and v hold a part of its rows
/// \pre check_inputs passed
/// \throws std::invalid_argument
template <class T>
FOVEA_COLD void check_logit_inputs(const char* op, const SoftmaxInputs<T>& inputs,
                                   const std::optional<Index>& sequence = {}) {
  const Shape logits = {inputs.q.batch(), inputs.q.heads(), inputs.q.rows(),
                        sequence.value_or(inputs.k.rows())};
  const char* const keys = sequence ? "the rows of the sequence" : "the rows of k";
  Index visible = logits[3];
  if (!sequence && !inputs.key_lengths.empty()) {
    visible = *std::max_element(inputs.key_lengths.begin(), inputs.key_lengths.end());
  }
  detail::check_broadcast(op, "bias", inputs.bias, logits, keys, visible);
  detail::check_broadcast(op, "mask", inputs.mask, logits, keys, visible);
  detail::check_per_head(op, "alibi_slopes", inputs.alibi_slopes.size(), logits[1]);
  detail::check_per_head(op, "sinks", inputs.sink.size(), logits[1]);
  for (std::size_t h = 0; h < inputs.alibi_slopes.size(); ++h) {
    if (std::isfinite(inputs.alibi_slopes[h])) continue;
    refuse(op, "alibi_slopes[" + std::to_string(h) + "]", to_string(inputs.alibi_slopes[h]),
           "a finite number");
  }
}

/// Checks that an output tensor has the expected shape, distinct elements, and shares no element
/// with an input.
/// \throws std::invalid_argument
FOVEA_COLD inline void check_output(const char* op, const char* tensor, const TensorLayout& x,
                                    const detail::TensorList& inputs, const Shape& expected) {
  detail::check_made_shape(op, tensor, x.shape, expected);
  detail::check_written_layout(op, tensor, x);
  for (const detail::NamedTensor& other : inputs) {
    detail::check_apart(op, tensor, x, other.name, other.layout);
  }
}

namespace detail {

/// Checks the output and the saved tensors.
FOVEA_COLD inline void check_written(const char* op, const TensorList& inputs,
                                     const TensorLayout& out, const Shape& shape,
                                     const TensorList& saved,
                                     FunctionRef<Shape(std::string_view)> shape_of) {
  check_output(op, "out", out, inputs, shape);
  for (const NamedTensor& x : saved) {
    if (x.layout.empty()) continue;
    check_output(op, x.name, x.layout, inputs, shape_of(x.name));
    check_apart(op, x.name, x.layout, "out", out);
    for (const NamedTensor* before = saved.begin(); before != &x; ++before) {
      check_apart(op, x.name, x.layout, before->name, before->layout);
    }
  }
}

}  // namespace detail

/// Checks the output and the saved tensors.
/// \param shape_of shape_of(name) is the shape of a saved tensor
/// \pre the inputs are checked
/// \throws std::invalid_argument
template <class T, class In, class S>
void check_outputs(const char* op, const In& inputs, const View<T>& out, const S& saved,
                   FunctionRef<Shape(std::string_view)> shape_of) {
  using detail::out_shape;
  detail::check_written(op, inputs, out, out_shape(inputs), saved, shape_of);
}
/// The same for an operator that saves lse alone.
template <class T, class In, class S>
void check_outputs(const char* op, const In& inputs, const View<T>& out, const S& saved) {
  check_outputs(op, inputs, out, saved,
                [&](std::string_view /*lse*/) { return detail::row_shape(inputs); });
}

/// Checks that a tensor has the output's shape.
/// \pre the inputs are checked
/// \throws std::invalid_argument
template <class T, class In>
void check_rows(const char* op, const char* tensor, const In& inputs, const View<const T>& x) {
  using detail::out_shape;
  detail::check_made_shape(op, tensor, x.shape(), out_shape(inputs));
}

/// Checks the lse that a backward pass reads: required unless there are no rows.
/// \pre the inputs are checked
/// \throws std::invalid_argument
template <class In, class S>
void check_lse(const char* op, const In& inputs, const S& saved) {
  const Shape rows = detail::row_shape(inputs);
  if (!saved.lse.empty()) {
    detail::check_made_shape(op, "lse", saved.lse.shape(), rows);
  } else if (rows[0] * rows[1] * rows[2] != 0) {
    refuse_missing(op, "lse", "the lse that forward saved");
  }
}

namespace detail {

/// The text "the gradient of q", held in this object: a call without errors allocates nothing for
/// messages.
class GradName {
 public:
  GradName() = default;
  explicit GradName(std::string_view of) {
    constexpr std::string_view before = "the gradient of ";
    before.copy(text_.data(), before.size());
    of.copy(text_.data() + before.size(), text_.size() - 1 - before.size());
  }
  const char* text() const { return text_.data(); }

 private:
  std::array<char, 40> text_ = {};
};

/// Refuses gradients of tensors that were not given, except q, k and v, whose extents are checked.
FOVEA_COLD inline void check_grads_of_given(const char* op, const TensorList& inputs,
                                            const TensorList& grads) {
  for (const auto& [own, grad, is_span] : grads) {
    const std::string_view name = own;
    if (name == "q" || name == "k" || name == "v" || grad.empty()) continue;
    const TensorLayout input = inputs.named(name);
    if (!is_span && input.empty()) {
      refuse_given(op, std::string("the gradient of ") + own,
                   std::string("the inputs have no ") + own);
    } else if (is_span && grad.shape != input.shape) {
      refuse(op, std::string("the number of ") + own + "s in the gradients",
             std::to_string(grad.shape[1]),
             std::to_string(input.shape[1]) + ", the number of " + own + "s of the inputs");
    }
  }
}

}  // namespace detail

/// Checks that the requested gradients have their inputs' shapes and do not overlap other tensors.
/// \pre the inputs were checked
/// \throws std::invalid_argument
FOVEA_COLD inline void check_grads(const char* op, const detail::TensorList& inputs,
                                   const TensorLayout& out, const detail::TensorList& saved,
                                   const TensorLayout& d_out, const detail::TensorList& grads) {
  detail::check_grads_of_given(op, inputs, grads);
  for (const detail::NamedTensor& grad : grads) {
    if (grad.layout.empty()) continue;
    const detail::GradName name(grad.name);
    check_output(op, name.text(), grad.layout, inputs, inputs.named(grad.name).shape);
    detail::check_apart(op, name.text(), grad.layout, "out", out);
    detail::check_apart(op, name.text(), grad.layout, "d_out", d_out);
    for (const detail::NamedTensor& other : saved) {
      detail::check_apart(op, name.text(), grad.layout, other.name, other.layout);
    }
    for (const detail::NamedTensor* before = grads.begin(); before != &grad; ++before) {
      detail::check_apart(op, name.text(), grad.layout, detail::GradName(before->name).text(),
                          before->layout);
    }
  }
}

/// Checks a softmax backward pass's arguments besides the inputs: out, d_out, lse, and the
/// requested gradients.
/// \pre the inputs are checked
/// \throws std::invalid_argument
template <class T, class In, class S, class G>
void check_softmax_backward(const char* op, const In& inputs, const View<const T>& out,
                            const S& saved, const View<const T>& d_out, const G& grads) {
  check_rows(op, "out", inputs, out);
  check_rows(op, "d_out", inputs, d_out);
  check_lse(op, inputs, saved);
  check_grads(op, inputs, out, saved, d_out, grads);
}

/// Checks the gradient with respect to lse that a backward pass reads, if it is given.
/// \pre check_grads passed
/// \throws std::invalid_argument
FOVEA_COLD inline void check_d_lse(const char* op, const detail::InputShapes& inputs,
                                   const TensorLayout& d_lse, const detail::TensorList& grads) {
  if (d_lse.empty()) return;
  const Shape rows = {inputs.q[0], inputs.q[1], inputs.q[2], 1};
  detail::check_made_shape(op, "d_lse", d_lse.shape, rows);
  for (const detail::NamedTensor& grad : grads) {
    detail::check_apart(op, detail::GradName(grad.name).text(), grad.layout, "d_lse", d_lse);
  }
}

FOVEA_NAMESPACE_END
