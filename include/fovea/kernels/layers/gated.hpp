// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the gated-unit kernels.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// The function of the gate.
enum class GateKind : unsigned char {
  silu,       ///< x sigmoid(x), also called swish: SwiGLU
  gelu,       ///< GELU: GEGLU
  gelu_tanh,  ///< the tanh approximation of GELU
};

/// Rows of gated units, y = f(gate) up. Rows are dense; `*_row` are row strides in elements.
template <class T>
struct GatedArgs {
  const T* gate = nullptr;         ///< [rows, width]
  Index gate_row = 0;              ///< of gate
  const T* up = nullptr;           ///< [rows, width]
  Index up_row = 0;                ///< of up
  T* y = nullptr;                  ///< [rows, width], written by `gated`
  Index y_row = 0;                 ///< of y
  const T* d_y = nullptr;          ///< [rows, width], read by the gradient
  Index d_y_row = 0;               ///< of d_y
  T* d_gate = nullptr;             ///< [rows, width], written by the gradient; may be gate
  Index d_gate_row = 0;            ///< of d_gate
  T* d_up = nullptr;               ///< [rows, width], written by the gradient; may be up
  Index d_up_row = 0;              ///< of d_up
  Index rows = 0;                  ///< number of rows
  Index width = 0;                 ///< number of columns
  GateKind kind = GateKind::silu;  ///< f
};

FOVEA_NAMESPACE_END
