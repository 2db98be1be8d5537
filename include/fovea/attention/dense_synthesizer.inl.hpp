// SPDX-License-Identifier: MIT
/// \file
/// Included by dense_synthesizer.hpp, where it is documented.
#pragma once

#include <string>

#include "fovea/attention/dense_synthesizer.hpp"
#include "fovea/attention/synthesizer/passes.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T>
void DenseSynthesizerAttention::check_read(const Inputs<T>& in,
                                           const std::optional<Index>& sequence) {
  const Index batch = in.v.batch();
  detail::check_extent(name(), "x", in.x.shape(), 0, batch, "the batch of v");
  detail::check_extent(name(), "x", in.x.shape(), 2, in.v.rows(), "the rows of v");
  check_first_weights(in, batch);
  check_second_weights(in, batch, in.v.heads(), sequence.value_or(in.v.rows()),
                       sequence ? "the rows of the sequence" : "the rows of v");
  detail::check_extent(name(), "w2", in.w2.shape(), 2, in.w1.width(), "the width of w1");
  detail::check_head_groups(name(), "w1", in.w1, in.v);
}

template <class T>
void DenseSynthesizerAttention::check_first_weights(const Inputs<T>& in, Index batch) {
  detail::check_weight_batch(name(), "w1", in.w1, batch);
  if (in.x.heads() != 1) {
    detail::check_extent(name(), "x", in.x.shape(), 1, in.w1.heads(), "the heads of w1, or 1");
  }
  detail::check_extent(name(), "w1", in.w1.shape(), 2, in.x.width(), "the width of x");
  if (in.b1.empty()) return;
  detail::check_extent(name(), "b1", in.b1.shape(), 0, in.w1.batch(), "the batch of w1");
  detail::check_extent(name(), "b1", in.b1.shape(), 1, in.w1.heads(), "the heads of w1");
  detail::check_extent(name(), "b1", in.b1.shape(), 2, 1, "one row of biases");
  detail::check_extent(name(), "b1", in.b1.shape(), 3, in.w1.width(), "the width of w1");
}

template <class In>
void DenseSynthesizerAttention::check_second_weights(const In& from, Index batch, Index heads,
                                                     Index keys, const char* whose) {
  detail::check_weight_batch(name(), "w2", from.w2, batch);
  detail::check_extent(name(), "w2", from.w2.shape(), 1, heads, "the heads of v");
  if (from.w2.width() < keys) {
    refuse_extent(name(), "w2", from.w2.shape(), 3,
                  "at least " + std::to_string(keys) + ", " + whose);
  }
  if (from.b2.empty()) return;
  detail::check_extent(name(), "b2", from.b2.shape(), 0, from.w2.batch(), "the batch of w2");
  detail::check_extent(name(), "b2", from.b2.shape(), 1, heads, "the heads of v");
  detail::check_extent(name(), "b2", from.b2.shape(), 2, 1, "one row of biases");
  detail::check_extent(name(), "b2", from.b2.shape(), 3, from.w2.width(), "the width of w2");
}

template <class In>
void DenseSynthesizerAttention::check_keys(const DecoderShape& shape, const In& from, Index after) {
  if (from.v.empty()) return;
  check_second_weights(from, shape.batch, shape.key_heads, after, "the rows of v");
  detail::check_extent(name(), "w2", from.w2.shape(), 2, shape.width, "the width of the decoder");
}

template <class T>
void DenseSynthesizerAttention::check_rows(const DecoderShape& shape, const Inputs<T>& in,
                                           Index rows, Index /*after*/) {
  detail::check_extent(name(), "x", in.x.shape(), 0, shape.batch, "the batch of the decoder");
  detail::check_extent(name(), "x", in.x.shape(), 2, rows, "the rows of out");
  check_first_weights(in, shape.batch);
  detail::check_extent(name(), "w1", in.w1.shape(), 1, shape.query_heads,
                       "the query_heads of the decoder");
  detail::check_extent(name(), "w1", in.w1.shape(), 3, shape.width, "the width of the decoder");
}

FOVEA_SYNTHESIZER(DenseSynthesizerAttention)

FOVEA_NAMESPACE_END
