// SPDX-License-Identifier: MIT
/// \file
/// The layer kernels, one function per pass.
#pragma once

#include "fovea/kernels/layers/adam.hpp"
#include "fovea/kernels/layers/convolution.hpp"
#include "fovea/kernels/layers/cross_entropy.hpp"
#include "fovea/kernels/layers/elementwise.hpp"
#include "fovea/kernels/layers/gated.hpp"
#include "fovea/kernels/layers/norm.hpp"
#include "fovea/kernels/layers/product.hpp"
#include "fovea/kernels/layers/rotary.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/simd/isa.hpp"
#include "fovea/simd/softmax_constants.hpp"

FOVEA_NAMESPACE_BEGIN

/// The matrix products of layers, for tokens of T and weights stored in S.
template <class T, Storage S = Storage::native>
struct ProductKernels {
  /// A matrix product.
  void multiply(const ProductArgs<T, S>& args) const noexcept;

  /// The instruction-set level of the kernels; by default the machine's.
  IsaLevel level = isa_level();
};

/// Rotary positions of heads computed in T and stored in S.
template <class T, Storage S = Storage::native>
struct RotaryKernels {
  /// Rotates pairs of channels.
  void turn_heads(const RotaryArgs<T, S>& args) const noexcept;

  /// The instruction-set level of the kernels; by default the machine's.
  IsaLevel level = isa_level();
};

/// The kernels of layers, their losses and their optimiser, for tensors of T.
template <class T>
struct LayerKernels {
  /// The sum of rows.
  void add_rows(const RowSumArgs<T>& args) const noexcept;

  /// Layer or RMS normalisation.
  void normalise(const NormArgs<T>& args) const noexcept;
  /// The gradient of its input.
  void norm_grad(const NormArgs<T>& args) const noexcept;
  /// The gradients of its parameters.
  void norm_parameters(const NormArgs<T>& args) const noexcept;

  /// GELU.
  void gelu(const ElementArgs<T>& args) const noexcept;
  /// The gradient of its input.
  void gelu_grad(const ElementArgs<T>& args) const noexcept;
  /// the tanh approximation of GELU.
  void gelu_tanh(const ElementArgs<T>& args) const noexcept;
  /// The gradient of its input.
  void gelu_tanh_grad(const ElementArgs<T>& args) const noexcept;
  /// A sigmoid times a factor.
  void sigmoid(const ElementArgs<T>& args) const noexcept;
  /// The gradient of its input, from its result.
  void sigmoid_grad(const ElementArgs<T>& args) const noexcept;
  /// ReLU.
  void relu(const ElementArgs<T>& args) const noexcept;
  /// The gradient of its input.
  void relu_grad(const ElementArgs<T>& args) const noexcept;
  /// SiLU.
  void silu(const ElementArgs<T>& args) const noexcept;
  /// The gradient of its input.
  void silu_grad(const ElementArgs<T>& args) const noexcept;
  /// The hyperbolic tangent.
  void tanh(const ElementArgs<T>& args) const noexcept;
  /// The gradient of its input.
  void tanh_grad(const ElementArgs<T>& args) const noexcept;

  /// A gated unit.
  void gated(const GatedArgs<T>& args) const noexcept;
  /// The gradients of its inputs.
  void gated_grad(const GatedArgs<T>& args) const noexcept;

  /// A depthwise convolution.
  void convolve(const ConvolutionArgs<T>& args) const noexcept;
  /// The gradient of its weights.
  void convolution_weights(const ConvolutionArgs<T>& args) const noexcept;

  /// Softmax cross entropy, and its gradient.
  void cross_entropy(const CrossEntropyArgs<T>& args) const noexcept;

  /// A step of Adam.
  void adam(const AdamArgs<T>& args) const noexcept;
  /// Returns the sum of the squares of x[0, count), in double.
  double sum_of_squares(const T* x, Index count) const noexcept;

  /// The instruction-set level of the kernels; by default the machine's.
  IsaLevel level = isa_level();
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_KERNEL_BODIES

#define FOVEA_LEVEL_BODY "fovea/kernels/layers/bodies.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T, Storage S>
void ProductKernels<T, S>::multiply(const ProductArgs<T, S>& args) const noexcept {
  FOVEA_AT_LEVEL(level, multiply<T, S>)(args);
}
FOVEA_STORED_KERNELS(ProductKernels)

template <class T, Storage S>
void RotaryKernels<T, S>::turn_heads(const RotaryArgs<T, S>& args) const noexcept {
  FOVEA_AT_LEVEL(level, turn_heads<T, S>)(args);
}
FOVEA_STORED_KERNELS(RotaryKernels)

template <class T>
void LayerKernels<T>::add_rows(const RowSumArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, add_rows<T>)(args);
}
template <class T>
void LayerKernels<T>::normalise(const NormArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, normalise<T>)(args);
}
template <class T>
void LayerKernels<T>::norm_grad(const NormArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, norm_grad<T>)(args);
}
template <class T>
void LayerKernels<T>::norm_parameters(const NormArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, norm_parameters<T>)(args);
}
template <class T>
void LayerKernels<T>::gelu(const ElementArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, gelu<T>)(args);
}
template <class T>
void LayerKernels<T>::gelu_grad(const ElementArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, gelu_grad<T>)(args);
}
template <class T>
void LayerKernels<T>::gelu_tanh(const ElementArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, gelu_tanh<T>)(args);
}
template <class T>
void LayerKernels<T>::gelu_tanh_grad(const ElementArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, gelu_tanh_grad<T>)(args);
}
template <class T>
void LayerKernels<T>::sigmoid(const ElementArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, sigmoid_rows<T>)(args);
}
template <class T>
void LayerKernels<T>::sigmoid_grad(const ElementArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, sigmoid_rows_grad<T>)(args);
}
template <class T>
void LayerKernels<T>::relu(const ElementArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, relu_rows<T>)(args);
}
template <class T>
void LayerKernels<T>::relu_grad(const ElementArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, relu_rows_grad<T>)(args);
}
template <class T>
void LayerKernels<T>::silu(const ElementArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, silu_rows<T>)(args);
}
template <class T>
void LayerKernels<T>::silu_grad(const ElementArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, silu_rows_grad<T>)(args);
}
template <class T>
void LayerKernels<T>::tanh(const ElementArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, tanh_rows<T>)(args);
}
template <class T>
void LayerKernels<T>::tanh_grad(const ElementArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, tanh_rows_grad<T>)(args);
}
template <class T>
void LayerKernels<T>::gated(const GatedArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, gated<T>)(args);
}
template <class T>
void LayerKernels<T>::gated_grad(const GatedArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, gated_grad<T>)(args);
}
template <class T>
void LayerKernels<T>::convolve(const ConvolutionArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, convolve<T>)(args);
}
template <class T>
void LayerKernels<T>::convolution_weights(const ConvolutionArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, convolution_weights<T>)(args);
}
template <class T>
void LayerKernels<T>::cross_entropy(const CrossEntropyArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, cross_entropy<T>)(args);
}
template <class T>
void LayerKernels<T>::adam(const AdamArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, adam_step<T>)(args);
}
template <class T>
double LayerKernels<T>::sum_of_squares(const T* x, Index count) const noexcept {
  return FOVEA_AT_LEVEL(level, sum_of_squares<T>)(x, count);
}
FOVEA_KERNELS(LayerKernels)

FOVEA_NAMESPACE_END

#endif
