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

/// Tensors with their shapes in a call: inputs, or their gradients. Those that need no memory stay
/// empty.
/// \tparam Inputs those of the operator, which may say the shapes of tensors of its own
template <class Inputs, class Tensors = Inputs, class S>
Tensors of_shape(const S& s) {
  return made_of_tensors<Tensors>([&](const char* name, auto& tensor) {
    if constexpr (requires { tensor.shape(); }) {
      Shape shape;
      if constexpr (requires { Inputs::shape_in_call(s, name); }) {
        shape = Inputs::shape_in_call(s, name);
      } else {
        shape = shape_in_call(s, name);
      }
      using Element = std::remove_pointer_t<decltype(tensor.data())>;
      if (shape != Shape{}) tensor = only_shape<Element>(shape);
    }
  });
}

}  // namespace detail

FOVEA_NAMESPACE_END
