// SPDX-License-Identifier: MIT
/// \file
/// Checks that every layer makes before writing. Messages name tensor, dimension, expected and got.
#pragma once

#include <string>
#include <string_view>

#include "fovea/core/tensor_check.hpp"
#include "fovea/layers/activation.hpp"

FOVEA_NAMESPACE_BEGIN

/// \throws std::invalid_argument if a size of a layer is below 1
inline void check_size(const char* layer, const char* what, Index size) {
  if (size < 1) refuse(layer, what, std::to_string(size), "at least 1");
}

/// Activations must be [B, 1, L, width], with unit stride in a row and non-negative row strides.
/// \throws std::invalid_argument if they are not
template <class T>
void check_activations(const char* layer, const char* tensor, const View<T>& x, Index width) {
  detail::check_extent(layer, tensor, x.shape(), 1, 1,
                       "since layers take activations [B, 1, L, width]");
  detail::check_extent(layer, tensor, x.shape(), 3, width, "the width of the layer");
  if (x.width() > 1 && x.strides()[3] != 1) {
    refuse(layer, std::string("stride of width of ") + tensor, std::to_string(x.strides()[3]),
           "1: the channels of a token are contiguous");
  }
  if (x.rows() > 1 && x.strides()[2] < 0) {
    refuse(layer, std::string("stride of rows of ") + tensor, std::to_string(x.strides()[2]),
           "at least 0");
  }
}

/// y must be activations of this width, for the tokens of x.
/// \throws std::invalid_argument if they are not
template <class T, class U>
void check_alike(const char* layer, const char* tensor, const View<T>& y, Index width,
                 const View<U>& x) {
  check_activations(layer, tensor, y, width);
  detail::check_extent(layer, tensor, y.shape(), 0, x.batch(), "the batch of x");
  detail::check_extent(layer, tensor, y.shape(), 2, x.rows(), "the rows of x");
}

/// An output must have distinct elements, and share none with the input.
/// \throws std::invalid_argument if it does not
template <class T, class U>
void check_written(const char* layer, const char* tensor, const View<T>& y, const char* input,
                   const View<U>& x) {
  detail::check_distinct(layer, tensor, y);
  detail::check_apart(layer, tensor, y, input, x);
}

/// Checks x and y of a forward pass. \throws std::invalid_argument as the checks above
template <class T>
void check_forward(const char* layer, const View<const T>& x, Index width, const View<T>& y,
                   Index out_width) {
  check_activations(layer, "x", x, width);
  check_alike(layer, "y", y, out_width, x);
  check_written(layer, "y", y, "x", x);
}

/// Checks x, d_y and d_x of a backward pass; d_x may be empty.
/// \throws std::invalid_argument as the checks above
template <class T>
void check_backward(const char* layer, const View<const T>& x, Index width,
                    const View<const T>& d_y, Index out_width, const View<T>& d_x) {
  check_activations(layer, "x", x, width);
  check_alike(layer, "d_y", d_y, out_width, x);
  if (d_x.empty()) return;
  check_alike(layer, "d_x", d_x, width, x);
  check_written(layer, "d_x", d_x, "x", x);
  check_written(layer, "d_x", d_x, "d_y", d_y);
}

/// d_x must have distinct elements, and be d_y itself or share no element with it.
/// \throws std::invalid_argument if that is not so
template <class T>
void check_in_place(const char* layer, const View<T>& d_x, const View<const T>& d_y) {
  detail::check_distinct(layer, "d_x", d_x);
  bool is_same = d_x.data() == d_y.data();
  for (std::size_t d = 0; d < 4; ++d) {
    is_same = is_same && (d_x.shape()[d] <= 1 || d_x.strides()[d] == d_y.strides()[d]);
  }
  if (is_same || !shares_elements(d_x, d_y)) return;
  refuse(layer, "d_x overlaps a part of d_y", "it must be d_y itself, or share no element with it");
}

namespace detail {

/// An output must share no element with the attention inputs of the tokens.
template <class T, class U>
void check_apart_from_terms(const char* layer, const char* tensor, const View<U>& y,
                            const Tokens<T>& tokens) {
  check_apart(layer, tensor, y, "bias", tokens.bias);
  check_apart(layer, tensor, y, "mask", tokens.mask);
  check_apart(layer, tensor, y, "indices", tokens.indices);
  check_apart(layer, tensor, y, "dominant", tokens.dominant);
  check_apart(layer, tensor, y, "random", tokens.random);
}

/// The gradient of the bias must have the bias's shape, distinct elements, and share none with
/// another tensor of the call.
template <class T>
void check_d_bias(const char* layer, const Tokens<T>& tokens, const View<const T>& d_y,
                  const View<T>& d_x) {
  const View<T>& d_bias = tokens.d_bias;
  if (d_bias.empty()) return;
  if (tokens.bias.empty()) refuse_given(layer, "d_bias", "there is no bias");
  check_extents(layer, "d_bias", d_bias.shape(), tokens.bias.shape(), "the shape of bias");
  check_written(layer, "d_bias", d_bias, "x", tokens.x);
  check_apart_from_terms(layer, "d_bias", d_bias, tokens);
  check_apart(layer, "d_bias", d_bias, "d_y", d_y);
  check_apart(layer, "d_bias", d_bias, "d_x", d_x);
}

}  // namespace detail

/// The same for a layer that passes all inputs of the tokens to attention.
template <class T>
void check_forward(const char* layer, const Tokens<T>& tokens, Index width, const View<T>& y,
                   Index out_width) {
  check_forward(layer, tokens.x, width, y, out_width);
  detail::check_apart_from_terms(layer, "y", y, tokens);
}

/// The same for its backward pass. \throws std::invalid_argument also for a wrong d_bias
template <class T>
void check_backward(const char* layer, const Tokens<T>& tokens, Index width,
                    const View<const T>& d_y, Index out_width, const View<T>& d_x) {
  check_backward(layer, tokens.x, width, d_y, out_width, d_x);
  detail::check_apart_from_terms(layer, "d_x", d_x, tokens);
  detail::check_d_bias(layer, tokens, d_y, d_x);
}

/// Rejects attention inputs that a layer does not read.
/// \param reason the reason, for the message \throws std::invalid_argument
template <class T>
void check_no_terms(const char* layer, const Tokens<T>& tokens, const char* reason) {
  const auto check = [&](const char* what, const auto& x) {
    if (!x.empty()) refuse_given(layer, what, reason);
  };
  check("bias", tokens.bias);
  check("d_bias", tokens.d_bias);
  check("mask", tokens.mask);
  check("indices", tokens.indices);
  check("dominant", tokens.dominant);
  check("random", tokens.random);
}

/// The saved state must match these tokens and this layer.
/// \param width the channels that the layer saves
/// \throws std::invalid_argument if it has another batch, number of rows or width
template <class T, class U>
void check_saved(const char* layer, const View<T>& kept, const View<U>& x, Index width) {
  if (kept.batch() != x.batch() || kept.rows() != x.rows()) {
    refuse(layer,
           "saved has " + std::to_string(kept.batch()) + " sequences of " +
               std::to_string(kept.rows()) + " rows",
           "expected " + std::to_string(x.batch()) + " of " + std::to_string(x.rows()) +
               ", from the forward pass of this x");
  }
  if (kept.width() == width || x.size() == 0) return;
  refuse(layer, "saved has " + std::to_string(kept.width()) + " channels",
         "expected " + std::to_string(width) + ", from the forward pass of this layer");
}

/// The training step must be that of the forward pass.
/// \throws std::invalid_argument if it is not
inline void check_training(const char* layer, const std::optional<TrainingStep>& saved,
                           const std::optional<TrainingStep>& given) {
  if (given == saved) return;
  const auto text = [](const std::optional<TrainingStep>& training) {
    if (!training) return std::string("unset");
    return "step " + std::to_string(training->step) + " of seed " + std::to_string(training->seed) +
           " in layer " + std::to_string(training->layer);
  };
  refuse(layer, "training", text(given), text(saved) + ", as in the forward pass");
}

/// Key lengths must be empty or one per sequence, in [0, rows]. Sequences must not be packed.
/// \param rows the rows of the sequence, of which x may be a part
/// \throws std::invalid_argument if that is not so
template <class T>
void check_lengths(const char* layer, const Tokens<T>& tokens, Index rows) {
  if (!tokens.cu_seqlens.empty()) {
    refuse_given(layer, "cu_seqlens", "the layer does not support packed sequences");
  }
  detail::check_key_lengths(layer, tokens.key_lengths, tokens.x.batch(), "x", rows, "x");
}

FOVEA_NAMESPACE_END
