// SPDX-License-Identifier: MIT
/// \file
/// One trial of an operator with its own kinds of tensors and random options: results and all
/// gradients compared with its oracle, and the same bits for other layouts and threads. Failures
/// are GoogleTest expectations.
#pragma once

#include <span>

#include "fuzz/bytes.hpp"
#include "support/scalars.hpp"

namespace fovea_test {

/// Calls of Reformer attention so far: those that the oracle judged, and those where rounding may
/// decide a bucket, of which the bits alone are compared.
struct ReformerCalls {
  long judged = 0;
  long undecided = 0;
};
ReformerCalls& reformer_calls();

/// Reformer or Sinkhorn attention; in drawn_sorted.cpp. T is float or double, as of all of these.
template <class T>
void try_sorted(Bytes& bytes);
/// Linformer or Nystroem attention; in drawn_mixed.cpp.
template <class T>
void try_mixed(Bytes& bytes);
/// A form of the Synthesizer; in drawn_synthesizers.cpp.
template <class T>
void try_synthesizer(Bytes& bytes);
/// FSAT, or Smart Bird attention; in drawn_edges.cpp.
template <class T>
void try_edges(Bytes& bytes);
/// Longformer attention with projections of its global rows; in drawn_projections.cpp.
template <class T>
void try_projections(Bytes& bytes);

template <class T>
void try_call_of(Bytes& bytes) {
  switch (bytes(0, 8)) {
    case 0:
    case 1:
      return try_sorted<T>(bytes);
    case 2:
    case 3:
      return try_mixed<T>(bytes);
    case 4:
    case 5:
      return try_synthesizer<T>(bytes);
    case 6:
    case 7:
      return try_edges<T>(bytes);
    default:
      return try_projections<T>(bytes);
  }
}

inline void try_call(std::span<const std::uint8_t> data) {
  Bytes bytes(data);
  bytes.once_in(2) ? try_call_of<OtherScalar>(bytes) : try_call_of<float>(bytes);
}

}  // namespace fovea_test
