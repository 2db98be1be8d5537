// SPDX-License-Identifier: MIT
/// \file
/// The distance from full attention where that would take too long for all rows. Test:
/// tests/bench/measure/last_rows_test.cpp.
#pragma once

#include <vector>

#include "bench/measure/compare_measure.hpp"
#include "fovea/attention/full.hpp"

namespace bench {

/// The last rows, which are compared.
inline constexpr Index kComparedRows = 64;

/// |out - full| / |full| of the last rows. \param out [H, N, Dv], of all of them
template <class T>
double distance_of_last_rows(const AllInputs<T>& in, const std::vector<T>& out, bool causal,
                             Index rows, ThreadPool& pool) {
  const Shape shape = {1, in.q.heads(), rows, in.v.width()};
  std::vector<T> full(static_cast<std::size_t>(shape[1] * rows * shape[3]));
  fovea::FullAttention{{.causal = causal}}.forward(last_rows(in, rows), View<T>(full.data(), shape),
                                                   pool);
  std::vector<T> last;
  for (Index h = 1; h <= shape[1]; ++h) {
    const T* const end = out.data() + h * in.q.rows() * shape[3];
    last.insert(last.end(), end - rows * shape[3], end);
  }
  return relative_distance(last, full);
}

}  // namespace bench
