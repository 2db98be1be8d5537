// SPDX-License-Identifier: MIT
/// \file
/// The inputs, saved tensors and gradients of all families together, for code that runs any
/// operator: they convert to those of one, and what that one does not have is left behind.
#pragma once

#include <concepts>
#include <span>
#include <type_traits>

#include "fovea/attention/attention.hpp"

namespace bench {

// Each tensor of some operator, once: X(type, name). Inputs besides q, k and v.
#define BENCH_INPUTS(X)                                     \
  X(fovea::IndexSpan, key_lengths)                          \
  X(fovea::IndexSpan, cu_seqlens_q)                         \
  X(fovea::IndexSpan, cu_seqlens_k)                         \
  X(fovea::IndexSpan, first_positions)                      \
  X(fovea::View<const fovea::Compute<T>>, bias)             \
  X(fovea::View<const bool>, mask)                          \
  X(std::span<const fovea::Compute<T>>, alibi_slopes)       \
  X(std::span<const fovea::Compute<T>>, sink)               \
  X(fovea::View<const fovea::Compute<T>>, beta)             \
  X(fovea::View<const fovea::Compute<T>>, near_logits)      \
  X(fovea::View<const fovea::Compute<T>>, far_logits)       \
  X(fovea::View<const fovea::Index>, indices)               \
  X(fovea::View<const fovea::Compute<T>>, sketch_q)         \
  X(fovea::View<const fovea::Compute<T>>, sketch_k)         \
  X(fovea::View<const fovea::Compute<T>>, draws)            \
  X(fovea::View<const fovea::Compute<T>>, dominant)         \
  X(fovea::View<const fovea::Compute<T>>, projection)       \
  X(fovea::View<const fovea::Compute<T>>, key_projection)   \
  X(fovea::View<const fovea::Compute<T>>, value_projection) \
  X(fovea::View<const fovea::Compute<T>>, sorting)
#define BENCH_SAVED(X)                                \
  X(fovea::View<fovea::Compute<T>>, lse)              \
  X(fovea::View<fovea::Index>, indices)               \
  X(fovea::View<fovea::Compute<T>>, near_out)         \
  X(fovea::View<fovea::Compute<T>>, near_lse)         \
  X(fovea::View<fovea::Compute<T>>, projected_keys)   \
  X(fovea::View<fovea::Compute<T>>, projected_values) \
  X(fovea::View<fovea::Compute<T>>, landmark_lse)     \
  X(fovea::View<fovea::Compute<T>>, landmark_values)
#define BENCH_GRADS(X)              \
  X(fovea::View<T>, q)              \
  X(fovea::View<T>, k)              \
  X(fovea::View<T>, v)              \
  X(fovea::View<T>, bias)           \
  X(std::span<T>, sink)             \
  X(fovea::View<T>, beta)           \
  X(fovea::View<T>, near_logits)    \
  X(fovea::View<T>, far_logits)     \
  X(fovea::View<T>, dominant)       \
  X(fovea::View<T>, projection)     \
  X(fovea::View<T>, key_projection) \
  X(fovea::View<T>, value_projection)
#define BENCH_MEMBER(Type, name) Type name = {};
#define BENCH_VISIT(Type, name) visit(#name, name);
#define BENCH_ASSIGN(Type, name) to.name = name;
#define BENCH_ASSIGN_IF_MEMBER(Type, name) \
  if constexpr (requires { to.name; }) to.name = name;

namespace detail {

/// Something whose q is a View<T>.
template <class To, class T>
concept HasQueries = std::is_aggregate_v<To> && std::default_initializable<To> && requires(To to) {
  requires std::derived_from<decltype(to.q), fovea::View<T>>;
};

/// Something that an operator saves.
template <class To, class T>
concept IsSaved = std::same_as<To, fovea::LinearSaved<T>> || requires(To to) {
  requires std::derived_from<decltype(to.lse), fovea::View<fovea::Compute<T>>>;
} || requires(To to) {
  requires std::derived_from<decltype(to.near_lse), fovea::View<fovea::Compute<T>>>;
};

}  // namespace detail

/// What some operator reads.
template <class T>
struct AllInputs {
  fovea::View<const T> q = {};
  fovea::View<const T> k = {};
  fovea::View<const T> v = {};
  BENCH_INPUTS(BENCH_MEMBER)

  /// Calls visit(name, member) for each, as structs with FOVEA_TENSORS do.
  template <class F>
  void for_each_tensor(const F& visit) const {
    visit("q", q);
    visit("k", k);
    visit("v", v);
    BENCH_INPUTS(BENCH_VISIT)
  }

  /// The inputs of a family.
  template <detail::HasQueries<const T> To>
  // NOLINTNEXTLINE(google-explicit-constructor): an operator is called with these
  operator To() const {
    To to;
    to.q = q;
    to.k = k;
    to.v = v;
    BENCH_INPUTS(BENCH_ASSIGN_IF_MEMBER)
    return to;
  }

  /// The same with other q, k and v.
  template <class S>
  requires std::same_as<fovea::Compute<S>, fovea::Compute<T>> AllInputs<S> with_tensors(
      const fovea::View<const S>& other_q, const fovea::View<const S>& other_k,
      const fovea::View<const S>& other_v)
  const {
    AllInputs<S> to{other_q, other_k, other_v};
    BENCH_INPUTS(BENCH_ASSIGN)
    return to;
  }

  /// What chooses keys alone.
  fovea::SketchInputs<fovea::Compute<T>> sketch() const {
    return {sketch_q, sketch_k, key_lengths, cu_seqlens_q, cu_seqlens_k, first_positions, draws};
  }
};

/// What some operator saves.
template <class T>
struct AllSaved {
  BENCH_SAVED(BENCH_MEMBER)

  /// The saved tensors of a family.
  template <detail::IsSaved<T> To>
  // NOLINTNEXTLINE(google-explicit-constructor): as of the inputs
  operator To() const {
    To to;
    BENCH_SAVED(BENCH_ASSIGN_IF_MEMBER)
    return to;
  }
};

/// The gradients of some operator.
template <class T>
struct AllGrads {
  BENCH_GRADS(BENCH_MEMBER)

  /// The gradients of a family.
  template <detail::HasQueries<T> To>
  // NOLINTNEXTLINE(google-explicit-constructor): as of the inputs
  operator To() const {
    To to;
    BENCH_GRADS(BENCH_ASSIGN_IF_MEMBER)
    return to;
  }
};

#undef BENCH_ASSIGN_IF_MEMBER
#undef BENCH_ASSIGN
#undef BENCH_VISIT
#undef BENCH_MEMBER
#undef BENCH_GRADS
#undef BENCH_SAVED
#undef BENCH_INPUTS

/// The shape of the operator `Op`. \param beyond K, M, P, R or d, if that says one of them
template <class Op>
typename Op::Shape shape_for(const fovea::AttentionShape& s, fovea::Index beyond) {
  typename Op::Shape shape{s.batch, s.query_heads, s.key_heads,  s.queries,
                           s.keys,  s.width,       s.value_width};
  if constexpr (requires { shape.keys_per_row; }) shape.keys_per_row = beyond;
  if constexpr (requires { shape.sketch_width; }) shape.sketch_width = beyond;
  if constexpr (requires { shape.dominants; }) shape.dominants = beyond;
  if constexpr (requires { shape.features; }) shape.features = beyond;
  if constexpr (requires { shape.projected_keys; }) shape.projected_keys = beyond;
  return shape;
}

/// The sizes of a decoder of the operator `Op`. \param beyond d or R, if they say it
template <class Op>
typename Op::DecoderShape decoder_shape_for(const fovea::DecoderShape& s, fovea::Index beyond) {
  typename Op::DecoderShape shape{s.batch,       s.query_heads, s.key_heads,      s.width,
                                  s.value_width, s.reserve,     s.rollback_tokens};
  if constexpr (requires { shape.sketch_width; }) shape.sketch_width = beyond;
  if constexpr (requires { shape.features; }) shape.features = beyond;
  return shape;
}

}  // namespace bench
