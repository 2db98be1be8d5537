// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the layers' kernels: matrix products, normalisations, element-wise functions, gated
/// units, rotary positions, depthwise convolutions, cross entropy and the optimiser.
#pragma once

#include "fovea/core/config.hpp"
#include "fovea/core/index_span.hpp"
#include "fovea/simd/matrix.hpp"

FOVEA_NAMESPACE_BEGIN

/// The rows of a product computed at once: a multiple of a register block's rows at every level, so
/// that tasks of this size leave no small block.
inline constexpr Index kProductRows = 192;
/// The same for rows with strided steps, which are packed.
inline constexpr Index kPackedRows = 96;

/// The product to[i, j] = sum_s a[i, s] b[s, j], to which a bias or to[i, j] itself is added. The
/// sum runs in reduction blocks of kReductionBlock steps, added in order, so the bits of an element
/// depend only on its row of a and its column of b. Weights may be stored in 16 bits.
template <class T, Storage S = Storage::native>
struct ProductArgs {
  Matrix<const T> a;        ///< [rows, steps], with a stride of 1 in a row or in a column
  StoredMatrix<S> b;        ///< [steps, columns], with a stride of 1 in a row or in a column
  T* to = nullptr;          ///< [rows, columns], dense rows, which share no element with a and b
  Index to_row = 0;         ///< row stride of `to` in elements
  Index rows = 0;           ///< number of rows
  Index columns = 0;        ///< number of columns
  Index steps = 0;          ///< number of products per element; if 0, the sum is 0
  const T* bias = nullptr;  ///< [columns] added to each row; null: nothing
  bool add = false;         ///< whether to[i, j] is added; then there is no bias
};

/// The sum to[c] += sum_i rows[i, c], in the order of the rows.
template <class T>
struct RowSumArgs {
  const T* rows = nullptr;  ///< [count, width], dense rows
  Index row = 0;            ///< row stride in elements
  Index count = 0;          ///< number of rows
  Index width = 0;          ///< number of columns
  T* to = nullptr;          ///< [width]
};

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

/// Rows of elements for an element-wise function. Rows are dense; `*_row` are row strides in
/// elements. `to` may be x or d.
template <class T>
struct ElementArgs {
  const T* x = nullptr;  ///< [rows, width] the argument; for a sigmoid's gradient, its y
  Index x_row = 0;       ///< of x
  const T* d = nullptr;  ///< [rows, width] for gradients, that of the function's result
  Index d_row = 0;       ///< of d
  T* to = nullptr;       ///< [rows, width]
  Index to_row = 0;      ///< of to
  Index rows = 0;        ///< number of rows
  Index width = 0;       ///< number of columns
  T factor = 1;          ///< the factor of a sigmoid
};

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

/// Which channels of a head are rotated together.
enum class RotaryPairing : unsigned char {
  halves,  ///< channel i with channel i + width / 2, as in GPT-NeoX and Llama's Transformers form
  neighbours,  ///< channel 2 i with channel 2 i + 1, as in RoFormer and GGUF's form of Llama
};

/// Rows of heads whose pairs of channels are rotated in place. Pair i of row n becomes (a cos - b
/// sin, a sin + b cos) with the angle (n, i), or with its negative. 16-bit heads are rounded once
/// per element.
template <class T, Storage S = Storage::native>
struct RotaryArgs {
  OutputMatrix<S> x;        ///< [rows, channels] of the first head
  Index x_head = 0;         ///< head stride of x in elements
  Index rows = 0;           ///< number of rows
  Index heads = 0;          ///< number of heads
  Index pairs = 0;          ///< rotated pairs: the first 2 pairs channels of a head
  Matrix<const T> cosines;  ///< [rows, pairs] of the angles
  Matrix<const T> sines;    ///< [rows, pairs] of the angles
  RotaryPairing pairing = RotaryPairing::halves;  ///< which channels are a pair
  bool is_back = false;                           ///< whether angles are negated
};

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

/// Rows of logits with a target each. Rows are dense.
template <class T>
struct CrossEntropyArgs {
  const T* x = nullptr;      ///< [rows, classes] the logits
  Index x_row = 0;           ///< row stride of x in elements
  IndexSpan targets = {};    ///< [rows] classes; rows with a negative one are ignored
  T* d = nullptr;            ///< [rows, classes] the gradient, written; null: not requested
  Index d_row = 0;           ///< row stride of d in elements
  double* losses = nullptr;  ///< [rows] -log softmax(x)[target], or 0, written
  Index rows = 0;            ///< number of rows
  Index classes = 0;         ///< number of columns
  double share = 1;          ///< factor of the gradient
};

/// One step of Adam for some weights.
template <class T>
struct AdamArgs {
  T* weights = nullptr;         ///< [count]
  const T* gradient = nullptr;  ///< [count]
  T* mean = nullptr;            ///< [count] mean of the gradients
  T* square = nullptr;          ///< [count] mean of their squares
  Index count = 0;              ///< number of weights
  T share = 1;                  ///< factor of the gradient, by clipping
  T beta1 = 0;                  ///< decay of the mean
  T beta2 = 0;                  ///< decay of the mean square
  T rest1 = 1;                  ///< 1 - beta1, rounded once
  T rest2 = 1;                  ///< 1 - beta2, rounded once
  T rate = 0;                   ///< learning rate / (1 - beta1^t)
  T unbias2 = 1;                ///< 1 / (1 - beta2^t)
  T epsilon = 0;                ///< added to the root
  T kept = 1;                   ///< the factor of weight decay
};

FOVEA_NAMESPACE_END
