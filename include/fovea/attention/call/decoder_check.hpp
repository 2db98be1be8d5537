// SPDX-License-Identifier: MIT
/// \file
/// Every decoder's checks of its sizes and of a step's tensors.
#pragma once

#include <string>

#include "fovea/attention/call/check.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// The largest number of tokens of a decoder, which keeps positions far below kFarPosition.
inline constexpr Index kMostDecoderTokens = kFarPosition / 4;

namespace detail {

/// Refuses a negative number.
inline void check_at_least_0(const char* op, const char* what, Index x) {
  if (x < 0) refuse(op, what, std::to_string(x), "at least 0");
}

}  // namespace detail

/// \throws std::invalid_argument if a size is negative, the key heads do not divide the query
/// heads, or the alignment is top_left (a decoder's queries end where its keys end, as with both
/// other alignments)
inline void check_decoder_shape(const char* op, const DecoderShape& shape,
                                CausalAlignment alignment) {
  static_cast<void>(isa_level());  // throws now, not when tokens are appended
  if (alignment == CausalAlignment::top_left) {
    refuse(op, "alignment", "top_left",
           "bottom_right or key_length: the last query of a decoder is its last token");
  }
  detail::check_at_least_0(op, "batch", shape.batch);
  detail::check_at_least_0(op, "query_heads", shape.query_heads);
  detail::check_at_least_0(op, "key_heads", shape.key_heads);
  detail::check_at_least_0(op, "width", shape.width);
  detail::check_at_least_0(op, "value_width", shape.value_width);
  detail::check_at_least_0(op, "reserve", shape.reserve);
  detail::check_at_least_0(op, "rollback_tokens", shape.rollback_tokens);
  const Index heads = shape.key_heads;
  if (heads == 0 ? shape.query_heads != 0 : shape.query_heads % heads != 0) {
    refuse(op, "key_heads", std::to_string(heads),
           "a divisor of the " + std::to_string(shape.query_heads) + " query_heads");
  }
}

/// Checks tokens to be appended: their shapes, and that there are at most `most`.
/// \throws std::invalid_argument
template <class T>
void check_decoder_tokens(const char* op, const DecoderShape& shape, const View<const T>& k,
                          const View<const T>& v, Index most) {
  for (const auto& [tensor, x] : {std::pair{"k", &k}, std::pair{"v", &v}}) {
    detail::check_extent(op, tensor, x->shape(), 0, shape.batch, "the batch of the decoder");
    detail::check_extent(op, tensor, x->shape(), 1, shape.key_heads,
                         "the key_heads of the decoder");
  }
  detail::check_extent(op, "k", k.shape(), 3, shape.width, "the width of the decoder");
  detail::check_extent(op, "v", v.shape(), 3, shape.value_width, "the value_width of the decoder");
  detail::check_extent(op, "v", v.shape(), 2, k.rows(), "the rows of k");
  if (k.rows() > most) {
    refuse_extent(op, "k", k.shape(), 2, "at most " + std::to_string(most));
  }
}

/// Checks the queries of a step.
/// \param after the number of tokens after appending those of the step
/// \throws std::invalid_argument if the shape does not match the decoder, there are key lengths or
/// packed sequences, or there are more queries than tokens, or no tokens
template <detail::AnyInputs In>
void check_decoder_rows(const char* op, const DecoderShape& shape, const In& inputs, Index after) {
  const auto& q = inputs.q;
  detail::check_extent(op, "q", q.shape(), 0, shape.batch, "the batch of the decoder");
  detail::check_extent(op, "q", q.shape(), 1, shape.query_heads, "the query_heads of the decoder");
  detail::check_extent(op, "q", q.shape(), 3, shape.width, "the width of the decoder");
  if (!inputs.key_lengths.empty()) {
    refuse_given(op, "key_lengths", "a decoder tracks its own length");
  }
  if (!inputs.cu_seqlens_q.empty() || !inputs.cu_seqlens_k.empty()) {
    refuse_given(op, "cu_seqlens", "a decoder does not support packed sequences");
  }
  if constexpr (requires { inputs.first_positions; }) {
    if (!inputs.first_positions.empty()) {
      refuse_given(op, "first_positions", "the last query of a decoder is its last token");
    }
  }
  if (after == 0) refuse(op, "the length of the decoder", "0", "at least one token");
  if (q.rows() > after) {
    refuse_extent(op, "q", q.shape(), 2,
                  "at most " + std::to_string(after) + ", the tokens in the decoder");
  }
}

FOVEA_NAMESPACE_END
