// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the layer and RMS normalisation kernels.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// Rows of a normalisation, or of its gradient: layer normalisation if centred, else RMS
/// normalisation, without mean and shift. Rows are dense; `*_row` are row strides in elements.
template <class T>
struct NormArgs {
  const T* x = nullptr;      ///< [rows, width]
  Index x_row = 0;           ///< of x
  T* moments = nullptr;      ///< [rows, norm_moments(is_centred)], dense; written by `normalise`
  const T* scale = nullptr;  ///< [width]
  const T* shift = nullptr;  ///< [width], read by `normalise`
  T* y = nullptr;            ///< [rows, width], written by `normalise`
  Index y_row = 0;           ///< of y
  const T* d_y = nullptr;    ///< [rows, width], read by the gradients
  Index d_y_row = 0;         ///< of d_y
  T* d_x = nullptr;          ///< [rows, width], which may be d_y, written by `norm_grad`
  Index d_x_row = 0;         ///< of d_x
  T* d_scale = nullptr;      ///< [width], to which `norm_parameters` adds
  T* d_shift = nullptr;      ///< [width], to which `norm_parameters` adds
  Index rows = 0;            ///< number of rows
  Index width = 0;           ///< number of columns
  T epsilon = 0;             ///< added to the variance, or to the mean square
  bool is_centred = true;    ///< whether the mean of a row is subtracted, and `shift` added
};

/// The numbers saved per row: its mean if it is centred, and then 1 / deviation, where the
/// deviation is sqrt(variance + epsilon) or sqrt(mean square + epsilon).
constexpr Index norm_moments(bool is_centred) { return is_centred ? 2 : 1; }

FOVEA_NAMESPACE_END
