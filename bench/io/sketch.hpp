// SPDX-License-Identifier: MIT
/// \file
/// The tensors of a sketch for Smart Bird attention.
#pragma once

#include <vector>

#include "bench/entries/all_inputs.hpp"
#include "fovea/core/view.hpp"

namespace bench {

using fovea::Index;
using fovea::Shape;
using fovea::View;

/// d of what is measured, as in the paper.
inline constexpr Index kSketchWidth = 4;

/// Queries and keys of one head, [1, 1, N, d].
template <class T>
struct Sketch {
  Shape q_shape{};
  Shape k_shape{};
  std::vector<T> q, k;

  /// The inputs with the sketch, of whose queries those of the last rows count.
  AllInputs<T> beside(AllInputs<T> in) const {
    const Index rows = in.q.rows();
    in.sketch_q =
        View<const T>(q.data() + (q_shape[2] - rows) * q_shape[3], {1, 1, rows, q_shape[3]});
    in.sketch_k = View<const T>(k.data(), k_shape);
    return in;
  }
};

}  // namespace bench
