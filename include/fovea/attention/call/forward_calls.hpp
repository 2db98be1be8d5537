// SPDX-License-Identifier: MIT
/// \file
/// How an operator's forward pass is called.
#pragma once

#include <concepts>
#include <type_traits>

#include "fovea/attention/attention.hpp"
#include "fovea/attention/call/counted_memory.hpp"

FOVEA_NAMESPACE_BEGIN

/// Implements `forward` for an operator `Op` that derives from this class. `Op` has
/// `check(inputs, out, saved)` and, for this class, `run(inputs, out, saved, executor)`. On an
/// executor that only counts, `run` takes its memory and returns.
///
/// A single function takes all forms of the call, with parameters that are deduced from the
/// arguments and otherwise default to the operator's own types: compilers explain briefly why a
/// call does not match one function, but list all overloads of a name.
template <class Op>
class ForwardCalls {
 public:
  /// Computes attention: `forward(inputs, out)` on the calling thread, `forward(inputs, out,
  /// saved)`, `forward(inputs, out, executor)` or `forward(inputs, out, saved, executor)`. \param
  /// inputs {q, k, v} and, by their names, the rest of Op::Inputs: views, Eigen tensors or matrices
  /// \param out [B, Hq, Nq, Dv]: every element is written
  /// \param saved {lse}, if the operator has one, and the rest of Op::Saved: members without a
  /// tensor are not written. Optional.
  /// \param executor runs the blocks: a `ThreadPool`, any other `Executor`, or an
  /// Eigen::ThreadPoolDevice; or arena.on(...) with one of them, for scratch from an `Arena`
  /// \throws std::invalid_argument as `check` does, or if an arena is in use or too small, and
  /// std::bad_alloc if scratch cannot be allocated; all before anything is written
  template <class Out, class T = typename detail::CallScalar<Out>::Type, class In = InputsOf<Op, T>,
            class S = SavedOf<Op, T>, class E = Serial>
  void forward(const In& inputs, Out&& out, S&& saved = {}, E&& executor = {}) const {
    constexpr bool is_output = detail::OutputOf<Out, T>;
    static_assert(is_output,
                  "fovea: out must be a writable tensor of float, double, Eigen::bfloat16 or "
                  "Eigen::half: an Eigen tensor of rank 4, an Eigen matrix or a fovea::View, "
                  "neither const nor an expression");
    constexpr bool is_family = std::convertible_to<const In&, InputsOf<Op, T>>;
    if constexpr (is_output && !is_family) detail::refuse_family<In>();
    constexpr bool saves = std::convertible_to<S, SavedOf<Op, T>>;
    using Runner = std::conditional_t<saves, E, S>;
    constexpr bool runs_work = detail::ExecutorLike<Runner>;
    static_assert(runs_work, FOVEA_RUNS_WORK);
    constexpr bool is_whole = !ShardsRows<Runner>;
    static_assert(is_whole, FOVEA_SHARDS_NO_ROWS);
    static_assert(saves || std::same_as<E, Serial>,
                  "fovea: call forward(inputs, out, saved, executor), where saved is this "
                  "operator's Saved<T> for this scalar type");
    if constexpr (is_output && is_family && runs_work && is_whole) {
      const View<T> to(out);
      const InputsOf<Op, T>& own = inputs;
      const SavedOf<Op, T> kept = detail::saved_or_none<SavedOf<Op, T>>(saved);
      const Op& op = static_cast<const Op&>(*this);
      op.check(own, to, kept);
      op.run(own, to, kept, for_call(detail::one_of<saves>(executor, saved)));
    }
  }

  /// Bytes of scratch memory that `forward` takes with that many workers, at most. Op documents
  /// what they depend on.
  template <class T, class O = Op>
  [[nodiscard]] Index workspace_bytes(const typename O::Shape& shape, Index workers = 1) const {
    return counted_forward<T>(shape, workers);
  }

 protected:
  ~ForwardCalls() = default;

  /// The same for a shape of any type.
  template <class T, class S>
  Index counted_forward(const S& shape, Index workers) const {
    return detail::counted_bytes(workers, [&](const ExecutorRef& executor) {
      using detail::out_shape;
      const auto inputs = detail::of_shape<InputsOf<Op, T>>(shape);
      const View<T> out = detail::only_shape<T>(out_shape(inputs));
      static_cast<const Op&>(*this).run(inputs, out, SavedOf<Op, T>{}, executor);
    });
  }
};

FOVEA_NAMESPACE_END
