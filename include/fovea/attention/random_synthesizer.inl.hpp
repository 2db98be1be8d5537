// SPDX-License-Identifier: MIT
/// \file
/// Included by random_synthesizer.hpp, where it is documented.
#pragma once

#include "fovea/attention/random_synthesizer.hpp"
#include "fovea/attention/synthesizer/passes.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T>
void RandomSynthesizerAttention::check_read(const Inputs<T>& in,
                                            const std::optional<Index>& sequence) {
  detail::check_weight_batch(name(), "r", in.r, in.v.batch());
  detail::check_head_groups(name(), "r", in.r, in.v);
  detail::check_extent(name(), "r", in.r.shape(), 2, in.v.rows(), "the rows of v");
  detail::check_extent(name(), "r", in.r.shape(), 3, sequence.value_or(in.v.rows()),
                       sequence ? "the rows of the sequence" : "the rows of v");
}

template <class T>
void RandomSynthesizerAttention::check_rows(const DecoderShape& shape, const Inputs<T>& in,
                                            Index /*rows*/, Index after) {
  detail::check_weight_batch(name(), "r", in.r, shape.batch);
  detail::check_extent(name(), "r", in.r.shape(), 1, shape.query_heads,
                       "the query_heads of the decoder");
  detail::check_reaches(name(), "r", in.r, 2, after);
  detail::check_reaches(name(), "r", in.r, 3, after);
}

FOVEA_SYNTHESIZER(RandomSynthesizerAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_SYNTHESIZER_FORWARD, RandomSynthesizerAttention)

FOVEA_NAMESPACE_END
