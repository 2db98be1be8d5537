// SPDX-License-Identifier: MIT
/// \file
/// A tensor in a call's scratch memory.
#pragma once

#include "fovea/core/executor.hpp"
#include "fovea/core/view.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The number of elements of a shape. \throws std::bad_alloc if there are too many
inline Index element_count(const Shape& shape) {
  Index count = 1;
  for (const Index extent : shape) count = Workspace::size_of(count, extent);
  return count;
}

}  // namespace detail

/// A dense, uninitialised tensor in the scratch memory of one call.
template <class T>
class ScratchTensor {
 public:
  /// An empty tensor.
  ScratchTensor() = default;
  /// \param memory the call's (memory_of) \throws std::bad_alloc
  template <class Memory>
  ScratchTensor(const Shape& shape, Memory&& memory)
      : shape_(shape), memory_(memory.take(detail::element_count(shape), Index{sizeof(T)})) {}

  /// The whole tensor; its data is null if there are no elements.
  View<T> view() { return {memory_.template data<T>(), shape_}; }
  /// A head's first row.
  T* head(Index b, Index h) {
    return memory_.template data<T>() + (b * shape_[1] + h) * shape_[2] * shape_[3];
  }

 private:
  Shape shape_ = {};
  Workspace memory_;
};

FOVEA_NAMESPACE_END
