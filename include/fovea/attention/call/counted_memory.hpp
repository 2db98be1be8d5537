// SPDX-License-Identifier: MIT
/// \file
/// The scratch memory of a call, counted by making the call on an executor whose memory only
/// counts. So what a pass takes is written once, where the pass takes it.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include "fovea/attention/call/shapes.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/workspace.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// An executor that runs nothing, with memory that counts what is taken and must not be used.
class MemoryCounter {
 public:
  /// Tells passes to stop once they have taken their memory.
  static constexpr bool kOnlyCounts = true;
  /// So that no call is counted for the calling thread alone, however small.
  static constexpr bool kTakesSmallWork = true;

  /// Counts for that many workers.
  explicit MemoryCounter(Index workers) : workers_(workers) {}

  /// The number of workers.
  Index concurrency() const { return workers_; }
  /// Runs nothing.
  template <class F>
  void parallel_for(Index /*n*/, const F& /*f*/) const {}

  /// This object.
  MemoryCounter& memory() { return *this; }
  /// Counts the bytes. \throws std::bad_alloc if there are too many
  Workspace take(Index count, Index piece_bytes) {
    const Index size = Workspace::size_of(count, piece_bytes);
    bytes_ += size;
    return size == 0 ? Workspace() : Workspace::lent(unused_.data(), size);
  }
  /// Does nothing.
  static void require() {}
  /// True: it counts what the shape may need.
  static constexpr bool is_by_shape() { return true; }

  /// The bytes that were taken.
  Index bytes() const { return bytes_; }

 private:
  alignas(kWorkspaceAlignment) std::array<std::byte, kWorkspaceAlignment> unused_ = {};
  Index workers_;
  Index bytes_ = 0;
};

/// The bytes that call(executor) takes with that many workers.
template <class Call>
Index counted_bytes(Index workers, const Call& call) {
  MemoryCounter counter(workers);
  call(ExecutorRef(counter));
  return counter.bytes();
}

/// A tensor of that shape, with one element, 0, for all places: nothing may write it.
template <class U>
View<U> only_shape(const Shape& shape) {
  static std::remove_const_t<U> element{};
  return {&element, shape, Shape{}};
}

/// Gives tensors their shapes in a call: inputs, or their gradients. Those that need no memory stay
/// empty. Where a call may choose, they have the shapes that need most: the logits of a blend have
/// columns, and every sequence has its own weights or, if their gradients are then sums, shares
/// them.
/// \param s the operator's Shape
template <class Tensors, class S>
void give_shapes(Tensors& of, const S& s) {
  const auto give = []<class U>(ViewMember<U>& x, const Shape& shape) { x = only_shape<U>(shape); };
  if constexpr (requires { of.q; }) {
    give(of.q, {s.batch, s.query_heads, s.queries, s.width});
    give(of.k, {s.batch, s.key_heads, s.keys, s.width});
    give(of.v, {s.batch, s.key_heads, s.keys, s.value_width});
  }
  if constexpr (requires { of.global_q; }) {
    of.global_q = of.q;
    of.global_k = of.k;
    of.global_v = of.v;
  }
  if constexpr (requires { of.beta; }) give(of.beta, {s.batch, s.key_heads, s.keys, 1});
  if constexpr (requires { of.near_logits; }) {
    give(of.near_logits, {1, s.query_heads, 1, s.value_width});
    give(of.far_logits, {1, s.query_heads, 1, s.value_width});
  }
  if constexpr (requires { s.features; }) give(of.projection, {1, 1, s.features, s.width});
  if constexpr (requires { of.dominant; }) {
    give(of.dominant, {s.batch, s.query_heads, s.keys, s.dominants});
  }
  if constexpr (requires { of.indices; }) {
    give(of.indices, {s.batch, s.query_heads, s.queries, s.keys_per_row});
  }
  if constexpr (requires { of.sketch_q; }) {
    give(of.sketch_q, {s.batch, 1, s.queries, s.sketch_width});
    give(of.sketch_k, {s.batch, 1, s.keys, s.sketch_width});
  }
  if constexpr (requires { of.key_projection; }) {
    give(of.key_projection, {1, s.key_heads, s.projected_keys, s.keys});
    give(of.value_projection, {1, s.key_heads, s.projected_keys, s.keys});
  }
  if constexpr (requires { of.qk; }) {
    give(of.qk, {s.batch, s.heads, s.rows, s.width});
    give(of.v, {s.batch, s.heads, s.rows, s.value_width});
  } else if constexpr (!requires { of.q; }) {  // the queries and the keys are the same tokens
    give(of.v, {s.batch, s.key_heads, s.queries, s.value_width});
  }
  if constexpr (requires { of.r; }) give(of.r, {1, s.query_heads, s.queries, s.queries});
  if constexpr (requires { of.r1; }) {
    give(of.r1, {1, s.query_heads, s.queries, s.width});
    give(of.r2, {1, s.key_heads, s.queries, s.width});
  }
  if constexpr (requires { of.w1; }) {
    give(of.x, {s.batch, 1, s.queries, s.width});
    give(of.w1, {s.batch, s.query_heads, s.width, s.hidden});
    give(of.w2, {s.batch, s.key_heads, s.hidden, s.queries});
  }
}

/// Tensors with their shapes in a call.
template <class Tensors, class S>
Tensors of_shape(const S& s) {
  Tensors of;
  give_shapes(of, s);
  return of;
}

}  // namespace detail

FOVEA_NAMESPACE_END
