// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the depthwise-convolution kernels.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// A convolution along a sequence, each channel on its own, whose elements outside of [0, length)
/// count as 0. Rows are dense; `*_row` are row strides in elements.
template <class T>
struct ConvolutionArgs {
  const T* x = nullptr;        ///< [length, width] the sequence
  Index x_row = 0;             ///< of x
  Index length = 0;            ///< number of tokens
  const T* weights = nullptr;  ///< [taps, width], read by `convolve`
  Index weights_row = 0;       ///< of weights
  Index taps = 1;              ///< number of taps, which is odd
  bool reversed = false;       ///< whether `convolve` takes the last tap first, as gradients do
  T* to = nullptr;             ///< [., width] rows [begin, end) of it are written by `convolve`
  Index to_row = 0;            ///< of to
  Index begin = 0;             ///< first row of `to`, or of d
  Index end = 0;               ///< one past the last row; may be beyond the sequence
  bool add = false;            ///< whether `to` is added to
  const T* d = nullptr;        ///< [., width], `convolution_weights` reads rows [begin, end) of it
  Index d_row = 0;             ///< of d
  T* d_weights = nullptr;      ///< [taps, width], to which `convolution_weights` adds
  Index d_weights_row = 0;     ///< of d_weights
  Index width = 0;             ///< number of channels
};

FOVEA_NAMESPACE_END
