// SPDX-License-Identifier: MIT
/// \file
/// The layer kernels, one function per pass.
#pragma once

#include "fovea/kernels/layers/layers.hpp"
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

FOVEA_STORED_KERNEL(ProductKernels, multiply, ProductArgs, multiply<T, S>)
FOVEA_STORED_KERNELS(ProductKernels)

FOVEA_STORED_KERNEL(RotaryKernels, turn_heads, RotaryArgs, turn_heads<T, S>)
FOVEA_STORED_KERNELS(RotaryKernels)

FOVEA_KERNEL(LayerKernels, add_rows, RowSumArgs, add_rows<T>)
FOVEA_KERNEL(LayerKernels, normalise, NormArgs, normalise<T>)
FOVEA_KERNEL(LayerKernels, norm_grad, NormArgs, norm_grad<T>)
FOVEA_KERNEL(LayerKernels, norm_parameters, NormArgs, norm_parameters<T>)
FOVEA_KERNEL(LayerKernels, gelu, ElementArgs, gelu<T>)
FOVEA_KERNEL(LayerKernels, gelu_grad, ElementArgs, gelu_grad<T>)
FOVEA_KERNEL(LayerKernels, gelu_tanh, ElementArgs, gelu_tanh<T>)
FOVEA_KERNEL(LayerKernels, gelu_tanh_grad, ElementArgs, gelu_tanh_grad<T>)
FOVEA_KERNEL(LayerKernels, sigmoid, ElementArgs, sigmoid_rows<T>)
FOVEA_KERNEL(LayerKernels, sigmoid_grad, ElementArgs, sigmoid_rows_grad<T>)
FOVEA_KERNEL(LayerKernels, relu, ElementArgs, relu_rows<T>)
FOVEA_KERNEL(LayerKernels, relu_grad, ElementArgs, relu_rows_grad<T>)
FOVEA_KERNEL(LayerKernels, silu, ElementArgs, silu_rows<T>)
FOVEA_KERNEL(LayerKernels, silu_grad, ElementArgs, silu_rows_grad<T>)
FOVEA_KERNEL(LayerKernels, tanh, ElementArgs, tanh_rows<T>)
FOVEA_KERNEL(LayerKernels, tanh_grad, ElementArgs, tanh_rows_grad<T>)
FOVEA_KERNEL(LayerKernels, gated, GatedArgs, gated<T>)
FOVEA_KERNEL(LayerKernels, gated_grad, GatedArgs, gated_grad<T>)
FOVEA_KERNEL(LayerKernels, convolve, ConvolutionArgs, convolve<T>)
FOVEA_KERNEL(LayerKernels, convolution_weights, ConvolutionArgs, convolution_weights<T>)
FOVEA_KERNEL(LayerKernels, cross_entropy, CrossEntropyArgs, cross_entropy<T>)
FOVEA_KERNEL(LayerKernels, adam, AdamArgs, adam_step<T>)
template <class T>
double LayerKernels<T>::sum_of_squares(const T* x, Index count) const noexcept {
  return FOVEA_AT_LEVEL(level, sum_of_squares<T>)(x, count);
}
FOVEA_KERNELS(LayerKernels)

FOVEA_NAMESPACE_END

#endif
