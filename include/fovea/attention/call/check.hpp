// SPDX-License-Identifier: MIT
/// \file
/// The checks that every operator makes of its tensors before anything is written.
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

/// Refuses `tensor` unless it has the shape that follows from the inputs.
inline void check_made_shape(const char* op, const char* tensor, const Shape& shape,
                             const Shape& expected) {
  if (shape == expected) return;
  check_extents(op, tensor, shape, expected, "as the shapes of the inputs require");
}

}  // namespace detail

/// Checks that q, k, v and the key lengths agree with each other.
/// \throws std::invalid_argument if they do not, and as `isa_level` does
template <detail::AnyInputs In>
void check_inputs(const char* op, const In& inputs) {
  static_cast<void>(isa_level());
  const Shape& q = inputs.q.shape();
  const Shape& k = inputs.k.shape();
  const Shape& v = inputs.v.shape();
  if (inputs.q.is_none() && (k[0] != 0 || v[0] != 0 || k[3] != 0)) {
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
  // Positions are sums of row counts, and scratch is some hundred rows of q and v.
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

/// Checks that the ends of packed sequences ascend from 0 to the number of rows of their tensor.
inline void check_cu_seqlens(const char* op, const std::string& name, IndexSpan ends, Index rows,
                             const std::string& tensor) {
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

/// Checks that every extent is that of the logits, or 1, or that there are columns for all keys
/// that are visible.
/// \param keys whose rows the columns of the logits are
/// \param visible the largest key length, or the columns of the logits
template <class U>
void check_broadcast(const char* op, const char* tensor, const View<U>& x, const Shape& logits,
                     const char* keys, Index visible) {
  const std::array<const char*, 4> whose = {"the batch of q", "the heads of q", "the rows of q",
                                            keys};
  if (x.is_none()) return;
  for (std::size_t d = 0; d < 4; ++d) {
    const Index extent = x.shape()[d];
    const Index least = d == 3 ? (std::max)(visible, Index{1}) : logits[d];
    if (extent == 1 || extent == logits[d] || (extent >= least && extent < logits[d])) continue;
    std::string expected = "1 or " + std::to_string(logits[d]) + ", " + whose[d];
    if (least < logits[d]) {
      expected += ", or at least " + std::to_string(least) + ", the largest of key_lengths";
    }
    refuse_extent(op, tensor, x.shape(), d, expected);
  }
}

/// Checks that there is one number for each query head, or none.
template <class U>
void check_per_head(const char* op, const char* name, std::span<const U> x, Index heads) {
  const auto count = static_cast<Index>(x.size());
  if (count != 0 && count != heads) {
    refuse(op, std::string("the number of ") + name, std::to_string(count),
           std::to_string(heads) + ", the heads of q, or 0");
  }
}

}  // namespace detail

/// Checks where the sequences of packed tensors begin and end.
/// \pre check_inputs passed
/// \throws std::invalid_argument
template <detail::AnyInputs In>
void check_packing(const char* op, const In& inputs) {
  const auto& cu_q = inputs.cu_seqlens_q;
  const auto& cu_k = inputs.cu_seqlens_k;
  if (cu_q.empty() && cu_k.empty()) return;
  if (cu_q.empty()) refuse_missing(op, "cu_seqlens_q", "cu_seqlens_k is given");
  if (inputs.q.batch() != 1) {
    refuse_extent(op, "q", inputs.q.shape(), 0, "1, since cu_seqlens_q is given");
  }
  if (!inputs.key_lengths.empty()) {
    refuse_given(op, "key_lengths", "cu_seqlens_q says where sequences end");
  }
  if (!cu_k.empty() && cu_k.size() != cu_q.size()) {
    refuse(op, "the number of cu_seqlens_k", std::to_string(cu_k.size()),
           std::to_string(cu_q.size()) + ", the number of cu_seqlens_q");
  }
  detail::check_cu_seqlens(op, "cu_seqlens_q", cu_q, inputs.q.rows(), "q");
  if (cu_k.empty()) {
    detail::check_cu_seqlens(op, "cu_seqlens_q", cu_q, inputs.k.rows(),
                             "k, since there is no cu_seqlens_k");
  }
  detail::check_cu_seqlens(op, "cu_seqlens_k", cu_k, inputs.k.rows(), "k");
}

/// Checks the positions that inputs give.
/// \pre check_inputs and check_packing passed
/// \throws std::invalid_argument
template <detail::AnyInputs In>
void check_first_positions(const char* op, const In& inputs) {
  const auto& given = inputs.first_positions;
  if (given.empty()) return;
  const bool packed = !inputs.cu_seqlens_q.empty();
  const Index count =
      packed ? static_cast<Index>(inputs.cu_seqlens_q.size()) - 1 : inputs.q.batch();
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

/// Refuses what is easily meant otherwise: query rows that end where the rows of k end, though
/// their sequence has fewer keys.
/// \param knows_positions called where that matters: whether what a row sees depends on its
/// position \pre check_first_positions passed \throws std::invalid_argument
template <detail::AnyInputs In, class KnowsPositions>
void check_alignment(const char* op, const In& inputs, CausalAlignment alignment,
                     const KnowsPositions& knows_positions) {
  const Index queries = inputs.q.rows();
  const Index keys = inputs.k.rows();
  if (alignment != CausalAlignment::bottom_right || queries == keys) return;
  if (queries == 0 || !inputs.first_positions.empty()) return;
  for (std::size_t b = 0; b < inputs.key_lengths.size(); ++b) {
    const Index length = inputs.key_lengths[b];
    if (length == keys) continue;
    if (!knows_positions()) return;
    const std::string rows = std::to_string(queries);
    refuse(
        op, "alignment",
        "bottom_right, which lets the " + rows + " rows of q end at row " + std::to_string(keys) +
            " of k, though key_lengths[" + std::to_string(b) + "] is " + std::to_string(length),
        "CausalAlignment::key_length, which lets them end at key " + std::to_string(length) +
            ", or, if position " + std::to_string(keys - queries) +
            " of row 0 is meant, that in first_positions; top_left and as many rows of q as of k "
            "are accepted, too");
  }
}

/// Checks what changes the logits of softmax attention: bias, mask, ALiBi slopes and sink.
/// \param sequence the keys that there are, if q, k and v have a part of the rows of a sequence
/// \pre check_inputs passed
/// \throws std::invalid_argument
template <class T>
void check_logit_inputs(const char* op, const SoftmaxInputs<T>& inputs,
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
  detail::check_per_head(op, "alibi_slopes", inputs.alibi_slopes, logits[1]);
  detail::check_per_head(op, "sinks", inputs.sink, logits[1]);
  for (std::size_t h = 0; h < inputs.alibi_slopes.size(); ++h) {
    if (std::isfinite(inputs.alibi_slopes[h])) continue;
    refuse(op, "alibi_slopes[" + std::to_string(h) + "]", to_string(inputs.alibi_slopes[h]),
           "a finite number");
  }
}

namespace detail {

/// A tensor of the inputs or gradients as a view. A span of one number for each head becomes a
/// view, too; an empty span is no tensor.
template <class T>
const View<T>& as_view(const View<T>& x) {
  return x;
}
template <class T>
View<T> as_view(std::span<T> x) {
  return x.empty() ? View<T>{} : View<T>{x.data(), {1, static_cast<Index>(x.size()), 1, 1}};
}

}  // namespace detail

/// Checks that a tensor to be written has the expected shape, distinct elements, and no element in
/// common with an input.
/// \param inputs any struct that has `for_each_tensor`
/// \throws std::invalid_argument
template <class U, class In>
void check_output(const char* op, const char* tensor, const View<U>& x, const In& inputs,
                  const Shape& expected) {
  detail::check_made_shape(op, tensor, x.shape(), expected);
  detail::check_written_layout(op, tensor, x);
  inputs.for_each_tensor([&](const char* name, const auto& other) {
    detail::check_apart(op, tensor, x, name, detail::as_view(other));
  });
}

/// Checks the output, and lse if it is to be saved.
/// \pre check_inputs passed
/// \throws std::invalid_argument
template <class T, detail::InputsFor<T> In, class S>
void check_outputs(const char* op, const In& inputs, const View<T>& out, const S& saved) {
  check_output(op, "out", out, inputs, detail::out_shape(inputs));
  if (saved.lse.is_none()) return;
  check_output(op, "lse", saved.lse, inputs, detail::row_shape(inputs));
  detail::check_apart(op, "lse", saved.lse, "out", out);
}

/// Checks that a tensor has the shape of the output.
/// \pre check_inputs passed
/// \throws std::invalid_argument
template <class T, detail::InputsFor<T> In>
void check_rows(const char* op, const char* tensor, const In& inputs, const View<const T>& x) {
  detail::check_made_shape(op, tensor, x.shape(), detail::out_shape(inputs));
}

/// Checks the lse that a backward pass reads: it must be given unless there are no rows.
/// \pre check_inputs passed
/// \throws std::invalid_argument
template <detail::AnyInputs In, class S>
void check_lse(const char* op, const In& inputs, const S& saved) {
  const Shape rows = detail::row_shape(inputs);
  if (!saved.lse.is_none()) {
    detail::check_made_shape(op, "lse", saved.lse.shape(), rows);
  } else if (rows[0] * rows[1] * rows[2] != 0) {
    refuse_missing(op, "lse", "the lse that forward saved");
  }
}

namespace detail {

/// The tensor of the inputs that a gradient belongs to.
struct GradOf {
  bool is_none = true;
  Shape shape = {};
};

/// The text "the gradient of q", held in this object: a call without errors takes no memory for
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

/// The tensor of that name; none if the inputs have no such tensor.
template <class In>
GradOf tensor_named(const In& inputs, std::string_view wanted) {
  GradOf found;
  inputs.for_each_tensor([&](const char* name, const auto& tensor) {
    if (name == wanted) found = {as_view(tensor).is_none(), as_view(tensor).shape()};
  });
  return found;
}

/// Refuses gradients of tensors that were not given. q, k and v are left out: for them the extents
/// tell.
template <class T, class In, class G>
void check_grads_of_given(const char* op, const In& inputs, const G& grads) {
  grads.for_each_tensor([&]<class X>(const char* name, const X& grad) {
    const std::string_view own = name;
    if (own == "q" || own == "k" || own == "v" || !std::derived_from<X, View<T>>) return;
    if (as_view(grad).is_none() || !tensor_named(inputs, name).is_none) return;
    refuse_given(op, std::string("the gradient of ") + name,
                 std::string("the inputs have no ") + name);
  });
  if constexpr (requires { grads.sink; }) {
    if (grads.sink.empty() || grads.sink.size() == inputs.sink.size()) return;
    refuse(op, "the number of sinks in the gradients", std::to_string(grads.sink.size()),
           std::to_string(inputs.sink.size()) + ", the number of sinks of the inputs");
  }
}

}  // namespace detail

/// Checks that the gradients that are asked for have the shapes of their inputs, and memory of
/// their own.
/// \param inputs any struct that has `for_each_tensor`, checked
/// \throws std::invalid_argument
template <class T, class In, class S, class G>
void check_grads(const char* op, const In& inputs, const View<const T>& out, const S& saved,
                 const View<const T>& d_out, const G& grads) {
  detail::check_grads_of_given<T>(op, inputs, grads);
  struct Named {
    detail::GradName name;
    View<T> grad;
  };
  std::array<Named, 8> before;
  std::size_t count = 0;
  grads.for_each_tensor([&](const char* of, const auto& tensor) {
    const View<T> grad = detail::as_view(tensor);
    if (grad.is_none()) return;
    Named& now = before[count];
    now = {detail::GradName(of), grad};
    const char* const name = now.name.text();
    check_output(op, name, grad, inputs, detail::tensor_named(inputs, of).shape);
    detail::check_apart(op, name, grad, "out", out);
    detail::check_apart(op, name, grad, "d_out", d_out);
    saved.for_each_tensor([&](const char* kept, const auto& other) {
      detail::check_apart(op, name, grad, kept, other);
    });
    for (std::size_t j = 0; j < count; ++j) {
      detail::check_apart(op, name, grad, before[j].name.text(), before[j].grad);
    }
    ++count;
  });
}

/// Checks the gradient with respect to lse that a backward pass reads, if it is given.
/// \pre check_grads passed
/// \throws std::invalid_argument
template <class T, detail::InputsFor<T> In, class G>
void check_d_lse(const char* op, const In& inputs, const View<const T>& d_lse, const G& grads) {
  if (d_lse.is_none()) return;
  detail::check_made_shape(op, "d_lse", d_lse.shape(), detail::row_shape(inputs));
  grads.for_each_tensor([&](const char* of, const auto& tensor) {
    const View<T> grad = detail::as_view(tensor);
    if (grad.is_none()) return;
    detail::check_apart(op, detail::GradName(of).text(), grad, "d_lse", d_lse);
  });
}

FOVEA_NAMESPACE_END
