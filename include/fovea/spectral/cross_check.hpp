// SPDX-License-Identifier: MIT
/// \file
/// The checks that HiddenStateCross makes before it writes anything.
#pragma once

#include <string>

#include "fovea/core/tensor_check.hpp"
#include "fovea/simd/isa.hpp"
#include "fovea/spectral/cross_inputs.hpp"

FOVEA_NAMESPACE_BEGIN

/// The largest number of rows of a sequence. FFTW counts elements in int. Below this bound scratch
/// sizes in bytes also fit Index.
inline constexpr Index kLongestCross = Index{1} << 30;

/// Checks the shapes and key lengths that a cross reads.
/// \throws std::invalid_argument if the extent of heads is not 1, if sequences are longer than
/// kLongestCross, if f1 and f2 have different shapes, if the key lengths do not match them, or as
/// isa_level
template <class T>
void check_cross_inputs(const char* op, const CrossInputs<T>& inputs) {
  static_cast<void>(isa_level());
  const Shape& shape = inputs.f1.shape();
  if (shape[1] != 1) {
    refuse_extent(op, "f1", shape, 1, "1: the cross has no heads");
  }
  if (shape[2] > kLongestCross) {
    refuse_extent(op, "f1", shape, 2,
                  "at most " + std::to_string(kLongestCross) + ", the limit of FFTW");
  }
  if (inputs.f2.empty() && shape != Shape{}) refuse_missing(op, "f2");
  detail::check_extents(op, "f2", inputs.f2.shape(), shape, "the shape of f1");
  detail::check_key_lengths(op, inputs.key_lengths, shape[0], "f1", shape[2], "f1");
}

/// An output must have the shape of f1, no negative stride and distinct elements, and share none
/// with an input.
/// \pre check_cross_inputs passed
/// \throws std::invalid_argument if it does not
template <class T>
void check_cross_output(const char* op, const char* tensor, const View<T>& x,
                        const CrossInputs<T>& inputs) {
  detail::check_extents(op, tensor, x.shape(), inputs.f1.shape(), "the shape of f1");
  detail::check_written_layout(op, tensor, x);
  detail::check_apart(op, tensor, x, "f1", inputs.f1);
  detail::check_apart(op, tensor, x, "f2", inputs.f2);
}

FOVEA_NAMESPACE_END
