// SPDX-License-Identifier: MIT
/// \file
/// The checks of activations that every layer makes before it writes anything.
#pragma once

#include <string>
#include <string_view>

#include "fovea/core/tensor_check.hpp"
#include "fovea/layers/activation.hpp"

FOVEA_NAMESPACE_BEGIN

/// A size that a layer is made with must be at least 1. \throws std::invalid_argument if it is not
inline void check_size(const char* layer, const char* what, Index size) {
  if (size < 1) refuse(layer, what, std::to_string(size), "at least 1");
}

/// Activations must be [B, 1, L, width], with unit stride in a row and rows that do not descend.
/// \throws std::invalid_argument if they are not
template <class T>
void check_activations(const char* layer, const char* tensor, const View<T>& x, Index width) {
  detail::check_extent(layer, tensor, x.shape(), 1, 1, "since heads are a layer's own");
  detail::check_extent(layer, tensor, x.shape(), 3, width, "that of the layer");
  if (x.width() > 1 && x.strides()[3] != 1) {
    refuse(layer, std::string("stride of width of ") + tensor, std::to_string(x.strides()[3]),
           "1: the channels of a token lie side by side");
  }
  if (x.rows() > 1 && x.strides()[2] < 0) {
    refuse(layer, std::string("stride of rows of ") + tensor, std::to_string(x.strides()[2]),
           "at least 0");
  }
}

/// y must be activations of this width, for the same tokens as x.
/// \throws std::invalid_argument if they are not
template <class T, class U>
void check_alike(const char* layer, const char* tensor, const View<T>& y, Index width,
                 const View<U>& x) {
  check_activations(layer, tensor, y, width);
  detail::check_extent(layer, tensor, y.shape(), 0, x.batch(), "the batch of x");
  detail::check_extent(layer, tensor, y.shape(), 2, x.rows(), "the rows of x");
}

/// A tensor that is written must have distinct elements, and share none with the input.
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

/// Checks x, d_y and d_x of a backward pass; d_x may be none.
/// \throws std::invalid_argument as the checks above
template <class T>
void check_backward(const char* layer, const View<const T>& x, Index width,
                    const View<const T>& d_y, Index out_width, const View<T>& d_x) {
  check_activations(layer, "x", x, width);
  check_alike(layer, "d_y", d_y, out_width, x);
  if (d_x.is_none()) return;
  check_alike(layer, "d_x", d_x, width, x);
  check_written(layer, "d_x", d_x, "x", x);
  check_written(layer, "d_x", d_x, "d_y", d_y);
}

/// What a forward pass has saved must be of these tokens.
/// \throws std::invalid_argument if it has another batch or another number of rows
template <class T, class U>
void check_saved(const char* layer, const View<T>& kept, const View<U>& x) {
  if (kept.batch() == x.batch() && kept.rows() == x.rows()) return;
  refuse(layer, "what was saved",
         std::to_string(kept.batch()) + " sequences of " + std::to_string(kept.rows()) + " rows",
         std::to_string(x.batch()) + " of " + std::to_string(x.rows()) +
             ": saved by the forward pass of this x");
}

/// A backward pass must be of the same step of training as the forward pass, or of none.
/// \throws std::invalid_argument if it is not
inline void check_training(const char* layer, const std::optional<TrainingStep>& saved,
                           const std::optional<TrainingStep>& given) {
  if (given == saved) return;
  const auto text = [](const std::optional<TrainingStep>& training) {
    if (!training) return std::string("none");
    return "step " + std::to_string(training->step) + " of seed " + std::to_string(training->seed) +
           " in layer " + std::to_string(training->layer);
  };
  refuse(layer, "training", text(given), text(saved) + ", as in the forward pass");
}

/// There must be no key lengths, or one for each sequence, in [0, rows], and no packed sequences.
/// \param rows those of the sequence, of which x may be a part
/// \throws std::invalid_argument if that is not so
template <class T>
void check_lengths(const char* layer, const Tokens<T>& tokens, Index rows) {
  if (!tokens.cu_seqlens.empty()) {
    refuse(layer, "cu_seqlens", "given", "none: the layer takes no packed sequences");
  }
  detail::check_key_lengths(layer, tokens.key_lengths, tokens.x.batch(), "x", rows, "x");
}

FOVEA_NAMESPACE_END
