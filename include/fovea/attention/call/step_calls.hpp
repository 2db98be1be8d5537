// SPDX-License-Identifier: MIT
/// \file
/// How a decoder's step is called.
#pragma once

#include <concepts>
#include <type_traits>

#include "fovea/attention/attention.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Whether a step's inputs contain tokens to append.
template <class In>
bool has_new_tokens(const In& inputs) {
  if constexpr (requires { inputs.sketch_k; }) {
    if (!inputs.sketch_k.empty()) return true;
  }
  return !inputs.k.empty() || !inputs.v.empty();
}

/// The number of tokens in a step's inputs.
template <class In>
Index new_tokens(const In& inputs) {
  return has_new_tokens(inputs) ? inputs.k.rows() : 0;
}

}  // namespace detail

/// Implements `append` for a decoder `D` that derives from this class. `D` has, for this class,
/// `append_tokens(tokens)`, which documents the cost.
/// \tparam Tokens the operator's Tokens<T>
template <class D, class Tokens>
class AppendCalls {
 public:
  /// Appends n tokens: `append({.k = k, .v = v})`, or tensors in the order of the members of
  /// Tokens, `append(k, v)`.
  /// \throws std::invalid_argument if the tokens do not match the decoder; std::bad_alloc
  template <class In = Tokens, class... More>
  void append(const In& first, const More&... more) {
    D& decoder = static_cast<D&>(*this);
    if constexpr (sizeof...(More) == 0 && std::convertible_to<const In&, Tokens>) {
      decoder.append_tokens(first);
    } else {
      decoder.append_tokens(Tokens{first, more...});
    }
  }

 protected:
  ~AppendCalls() = default;
};

/// Implements `step` for a decoder `D` of the scalar T that derives from this class. `D` has, for
/// this class, `run_step(inputs, out, saved, executor)`, which documents its arguments and errors.
/// \tparam Inputs the operator's Inputs<T>
/// \tparam Saved the operator's Saved<T>
template <class D, class T, class Inputs, class Saved>
class StepCalls {
 public:
  /// Computes attention for the last n positions: `step(inputs, out)` on the calling thread,
  /// `step(inputs, out, saved)`, `step(inputs, out, executor)` or
  /// `step(inputs, out, saved, executor)`, like `forward`. Any k and v are appended first.
  /// \param inputs q [B, Hq, n, D], and the rest as in `forward`, where Nk is the length after
  /// appending
  /// \param out [B, Hq, n, Dv]: every element is written
  template <class Out, class In = Inputs, class S = Saved, class E = Serial>
  void step(const In& inputs, Out&& out, S&& saved = {}, E&& executor = {}) {
    constexpr bool is_output = detail::OutputOf<Out, T>;
    static_assert(
        is_output,
        "fovea: out must be a writable tensor of the decoder's scalar type: an Eigen tensor of "
        "rank 4, an Eigen matrix or a fovea::View, neither const nor an expression");
    constexpr bool is_family = std::convertible_to<const In&, Inputs>;
    if constexpr (!is_family) detail::refuse_family<In>();
    constexpr bool saves = std::convertible_to<S, Saved>;
    using Runner = std::conditional_t<saves, E, S>;
    constexpr bool runs_work = detail::ExecutorLike<Runner>;
    static_assert(runs_work, FOVEA_RUNS_WORK);
    constexpr bool is_whole = !ShardsRows<Runner>;
    static_assert(is_whole, FOVEA_SHARDS_NO_ROWS);
    static_assert(saves || std::same_as<E, Serial>,
                  "fovea: call step(inputs, out, saved, executor), where saved is this operator's "
                  "Saved<T> for this scalar type");
    if constexpr (is_output && is_family && runs_work && is_whole) {
      static_cast<D&>(*this).run_step(inputs, View<T>(out), detail::saved_or_none<Saved>(saved),
                                      for_call(detail::one_of<saves>(executor, saved)));
    }
  }

 protected:
  ~StepCalls() = default;
};

FOVEA_NAMESPACE_END
