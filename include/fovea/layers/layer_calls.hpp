// SPDX-License-Identifier: MIT
/// \file
/// The ways to call a layer.
#pragma once

#include <concepts>
#include <type_traits>

#include "fovea/layers/layer_check.hpp"
#include "fovea/layers/parameter.hpp"

FOVEA_NAMESPACE_BEGIN

/// The forward pass of a layer `Self` without anything kept, for inference. Self has
/// `Saved`, what its backward pass needs, and `forward(x, y, saved, executor)` with x an Input.
/// What it computes on its way lives as long as the call.
template <class Self, class T, class Input = View<const T>>
class LayerCalls {
 public:
  /// \tparam Layer is Self, which is complete where this is called
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
