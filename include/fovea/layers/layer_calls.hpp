// SPDX-License-Identifier: MIT
/// \file
/// How layers are called. Results of all layers are bit-identical for any number of threads.
#pragma once

#include <concepts>
#include <type_traits>

#include "fovea/layers/layer_check.hpp"
#include "fovea/layers/layer_parts.hpp"

FOVEA_NAMESPACE_BEGIN

/// Gives a layer `Self` an inference-only forward pass, and `visit`. Self has a type `Saved`, which
/// holds what its backward pass needs, and `forward(x, y, saved, executor)` with an Input x.
/// Intermediate results live as long as the call.
template <class Self, class T, class Input = View<const T>>
class LayerCalls : public LayerParts<Self> {
 public:
  /// Computes y without saving state for backward.
  /// \tparam Layer Self, complete at the point of call
  template <class E = Serial, class Layer = Self>
  requires(!std::same_as<std::remove_cvref_t<E>, typename Layer::Saved>) void forward(
      const Input& x, const View<T>& y, E&& executor = {}) const {
    typename Layer::Saved saved;
    static_cast<const Layer&>(*this).forward(x, y, saved, executor);
  }

 protected:
  ~LayerCalls() = default;
};

FOVEA_NAMESPACE_END
