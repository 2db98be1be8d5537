// SPDX-License-Identifier: MIT
/// \file
/// The sizes of one call and of a decoder, for each family.
#pragma once

#include "fovea/attention/call/inputs.hpp"

FOVEA_NAMESPACE_BEGIN

/// The sizes of one call.
struct AttentionShape {
  Index batch = 1;        ///< B
  Index query_heads = 1;  ///< Hq, a multiple of Hk
  Index key_heads = 1;    ///< Hk
  Index queries = 0;      ///< Nq
  Index keys = 0;         ///< Nk
  Index width = 0;        ///< D
  Index value_width = 0;  ///< Dv
};

namespace detail {

/// The number of query heads that read one key head: query head h reads key head h / group_size. It
/// is 0 if there are no heads.
constexpr Index group_size(Index query_heads, Index key_heads) {
  return key_heads == 0 ? 0 : query_heads / key_heads;
}

/// The sizes that all families have, from one family's shape.
template <class S>
AttentionShape common_shape(const S& s) {
  return {s.batch, s.query_heads, s.key_heads, s.queries, s.keys, s.width, s.value_width};
}

}  // namespace detail

/// The sizes of a call of IndexedAttention: those of AttentionShape, and K.
struct IndexedShape {
  Index batch = 1;         ///< B
  Index query_heads = 1;   ///< Hq, a multiple of Hk
  Index key_heads = 1;     ///< Hk
  Index queries = 0;       ///< Nq
  Index keys = 0;          ///< Nk
  Index width = 0;         ///< D
  Index value_width = 0;   ///< Dv
  Index keys_per_row = 0;  ///< K, the entries of each list

  /// The sizes that all families have.
  // NOLINTNEXTLINE(google-explicit-constructor): converts to the common sizes
  operator AttentionShape() const { return detail::common_shape(*this); }
};

/// The sizes of a call of SmartBirdAttention: those of AttentionShape, and d.
struct SmartBirdShape {
  Index batch = 1;         ///< B
  Index query_heads = 1;   ///< Hq, a multiple of Hk
  Index key_heads = 1;     ///< Hk
  Index queries = 0;       ///< Nq
  Index keys = 0;          ///< Nk
  Index width = 0;         ///< D
  Index value_width = 0;   ///< Dv
  Index sketch_width = 0;  ///< d, the columns of the sketch

  /// The sizes that all families have.
  // NOLINTNEXTLINE(google-explicit-constructor): converts to the common sizes
  operator AttentionShape() const { return detail::common_shape(*this); }
};

/// The sizes of a call of FsatAttention: those of AttentionShape, and M.
struct FsatShape {
  Index batch = 1;        ///< B
  Index query_heads = 1;  ///< Hq, a multiple of Hk
  Index key_heads = 1;    ///< Hk
  Index queries = 0;      ///< Nq, the same as Nk
  Index keys = 0;         ///< Nk
  Index width = 0;        ///< D
  Index value_width = 0;  ///< Dv
  Index dominants = 0;    ///< M, the dominant queries of each key

  /// The sizes that all families have.
  // NOLINTNEXTLINE(google-explicit-constructor): converts to the common sizes
  operator AttentionShape() const { return detail::common_shape(*this); }
};

/// The sizes of a call of PerformerAttention: those of AttentionShape, and R.
struct PerformerShape {
  Index batch = 1;        ///< B
  Index query_heads = 1;  ///< Hq, a multiple of Hk
  Index key_heads = 1;    ///< Hk
  Index queries = 0;      ///< Nq
  Index keys = 0;         ///< Nk
  Index width = 0;        ///< D
  Index value_width = 0;  ///< Dv
  Index features = 0;     ///< R, the rows of the projection

  /// The sizes that all families have.
  // NOLINTNEXTLINE(google-explicit-constructor): converts to the common sizes
  operator AttentionShape() const { return detail::common_shape(*this); }
};

/// The sizes of a call's tensors, unchecked.
template <class In>
AttentionShape shape_of(const In& inputs) {
  return {inputs.q.batch(), inputs.q.heads(), inputs.k.heads(), inputs.q.rows(),
          inputs.k.rows(),  inputs.q.width(), inputs.v.width()};
}

namespace detail {

/// A family's shape from its inputs.
/// \tparam S the type of the shape
/// \param last its last member
template <class S, class In>
S family_shape(const In& inputs, Index last) {
  return {inputs.q.batch(), inputs.q.heads(), inputs.k.heads(), inputs.q.rows(),
          inputs.k.rows(),  inputs.q.width(), inputs.v.width(), last};
}

}  // namespace detail

/// The sizes of a call of IndexedAttention from its tensors, unchecked.
template <class T>
IndexedShape shape_of(const IndexedInputs<T>& inputs) {
  return detail::family_shape<IndexedShape>(inputs, inputs.indices.width());
}
/// The sizes of a call of SmartBirdAttention from its tensors, unchecked.
template <class T>
SmartBirdShape shape_of(const SmartBirdInputs<T>& inputs) {
  return detail::family_shape<SmartBirdShape>(inputs, inputs.sketch_k.width());
}
/// The sizes of a call of FsatAttention from its tensors, unchecked.
template <class T>
FsatShape shape_of(const FsatInputs<T>& inputs) {
  return detail::family_shape<FsatShape>(inputs, inputs.dominant.width());
}

/// The sizes of a call of PerformerAttention from its tensors, unchecked.
template <class T>
PerformerShape shape_of(const PerformerInputs<T>& inputs) {
  return detail::family_shape<PerformerShape>(inputs, inputs.projection.rows());
}

/// A decoder's sizes.
struct DecoderShape {
  Index batch = 1;        ///< B
  Index query_heads = 1;  ///< Hq, a multiple of Hk
  Index key_heads = 1;    ///< Hk
  Index width = 0;        ///< D
  Index value_width = 0;  ///< Dv
  /// Number of tokens to allocate memory for initially.
  Index reserve = 0;
  /// The least number of last tokens that can be rolled back, even if a window keeps only some
  /// keys.
  Index rollback_tokens = 0;
};

/// The sizes of a decoder of SmartBirdAttention: those of DecoderShape, and d.
struct SmartBirdDecoderShape {
  Index batch = 1;            ///< B
  Index query_heads = 1;      ///< Hq, a multiple of Hk
  Index key_heads = 1;        ///< Hk
  Index width = 0;            ///< D
  Index value_width = 0;      ///< Dv
  Index reserve = 0;          ///< as in DecoderShape
  Index rollback_tokens = 0;  ///< as in DecoderShape
  Index sketch_width = 0;     ///< d, the columns of the sketch

  /// The sizes that all decoders have.
  // NOLINTNEXTLINE(google-explicit-constructor): converts to the common sizes
  operator DecoderShape() const {
    return {batch, query_heads, key_heads, width, value_width, reserve, rollback_tokens};
  }
};

/// The sizes of a decoder of PerformerAttention: those of DecoderShape, and R.
struct PerformerDecoderShape {
  Index batch = 1;            ///< B
  Index query_heads = 1;      ///< Hq, a multiple of Hk
  Index key_heads = 1;        ///< Hk
  Index width = 0;            ///< D
  Index value_width = 0;      ///< Dv
  Index reserve = 0;          ///< as in DecoderShape
  Index rollback_tokens = 0;  ///< as in DecoderShape
  Index features = 0;         ///< R, the rows of the projection

  /// The sizes that all decoders have.
  // NOLINTNEXTLINE(google-explicit-constructor): converts to the common sizes
  operator DecoderShape() const {
    return {batch, query_heads, key_heads, width, value_width, reserve, rollback_tokens};
  }
};

FOVEA_NAMESPACE_END
