// SPDX-License-Identifier: MIT
/// \file
/// Included by factorised_synthesizer.hpp, where it is documented.
#pragma once

#include <utility>

#include "fovea/attention/factorised_synthesizer.hpp"
#include "fovea/attention/synthesizer/passes.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T>
void FactorisedSynthesizerAttention::check_read(const Inputs<T>& in,
                                                const std::optional<Index>& /*sequence*/) {
  for (const auto& [tensor, factor] : {std::pair{"r1", &in.r1}, std::pair{"r2", &in.r2}}) {
    detail::check_weight_batch(name(), tensor, *factor, in.v.batch());
    detail::check_extent(name(), tensor, factor->shape(), 2, in.v.rows(), "the rows of v");
  }
  detail::check_head_groups(name(), "r1", in.r1, in.v);
  detail::check_extent(name(), "r2", in.r2.shape(), 1, in.v.heads(), "the heads of v");
  detail::check_extent(name(), "r2", in.r2.shape(), 3, in.r1.width(), "the width of r1");
}

template <class In>
void FactorisedSynthesizerAttention::check_keys(const DecoderShape& shape, const In& from,
                                                Index after) {
  if (from.v.empty()) return;
  detail::check_weight_batch(name(), "r2", from.r2, shape.batch);
  detail::check_extent(name(), "r2", from.r2.shape(), 1, shape.key_heads,
                       "the key_heads of the decoder");
  detail::check_reaches(name(), "r2", from.r2, 2, after);
  detail::check_extent(name(), "r2", from.r2.shape(), 3, shape.width, "the width of the decoder");
}

template <class T>
void FactorisedSynthesizerAttention::check_rows(const DecoderShape& shape, const Inputs<T>& in,
                                                Index /*rows*/, Index after) {
  detail::check_weight_batch(name(), "r1", in.r1, shape.batch);
  detail::check_extent(name(), "r1", in.r1.shape(), 1, shape.query_heads,
                       "the query_heads of the decoder");
  detail::check_reaches(name(), "r1", in.r1, 2, after);
  detail::check_extent(name(), "r1", in.r1.shape(), 3, shape.width, "the width of the decoder");
}

FOVEA_SYNTHESIZER(FactorisedSynthesizerAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_SYNTHESIZER_FORWARD, FactorisedSynthesizerAttention)

FOVEA_NAMESPACE_END
