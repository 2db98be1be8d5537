// SPDX-License-Identifier: MIT
/// \file
/// A tensor in the scratch memory of a call.
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

/// A dense tensor whose memory is taken for one call. Its elements are not initialised.
template <class T>
class ScratchTensor {
 public:
  /// A tensor of no elements.
  ScratchTensor() = default;
  /// \param memory that of the call (memory_of) \throws std::bad_alloc
  template <class Memory>
  ScratchTensor(const Shape& shape, Memory&& memory)
      : shape_(shape), memory_(memory.take(detail::element_count(shape), Index{sizeof(T)})) {}

  /// Bytes of a tensor of that shape.
  static Index bytes(const Shape& shape) { return detail::element_count(shape) * Index{sizeof(T)}; }

  /// All of it. It is null, but of this shape, if there are no elements.
  View<T> view() { return {memory_.template data<T>(), shape_}; }
  /// The first row of a head.
  T* head(Index b, Index h) {
    return memory_.template data<T>() + (b * shape_[1] + h) * shape_[2] * shape_[3];
  }

 private:
  Shape shape_ = {};
  Workspace memory_;
};

FOVEA_NAMESPACE_END
