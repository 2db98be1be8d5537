// SPDX-License-Identifier: MIT
/// \file
/// Helpers for tests on several ranks: each rank creates the tensors of the whole sequence, whose
/// contents depend only on positions, and its part of them. No test returns early, since other
/// ranks would wait.
#pragma once

#include <gtest/gtest.h>
#include <mpi.h>

#include <iomanip>
#include <string>
#include <vector>

#include "fovea/distributed/sharding.hpp"
#include "support/fill.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

using fovea::Range;
using fovea::distributed::Communicator;
using fovea::distributed::RowLayout;
using fovea::distributed::Sharding;

/// All ranks of the test.
inline const Communicator& all_ranks() {
  // Freed by MPI_Finalize, since the object is never destroyed.
  static const auto* const ranks = new Communicator(MPI_COMM_WORLD);
  return *ranks;
}

/// Layouts of every kind, also with ends at odd places and ranks without rows.
inline std::vector<RowLayout> layouts_of(Index rows, int ranks) {
  std::vector<RowLayout> layouts = {RowLayout::contiguous(rows, ranks),
                                    RowLayout::zigzag(rows, ranks),
                                    RowLayout::block_cyclic(rows, ranks, 37)};
  // The last rank has the first rows, and the others have the rest in turn.
  std::vector<std::vector<Range>> odd(as_size(ranks));
  odd.back().push_back({0, std::min<Index>(rows, 5)});
  for (Index first = 5, n = 0; first < rows; first += 101, ++n) {
    odd[as_size(n % ranks)].push_back({first, std::min(rows, first + 101)});
  }
  layouts.emplace_back(odd);
  return layouts;
}

/// The rows of this rank of a tensor of all rows, in a layout of memory.
template <class T>
Tensor<T> own_part(const Tensor<T>& whole, const Sharding& rows, const Layout& layout = {}) {
  Shape shape = whole.shape();
  shape[2] = rows.own_count();
  Tensor<T> part(shape, layout);
  Index at = 0;
  for (const Range& range : rows.own()) {
    for (Index n = range.begin; n < range.end; ++n, ++at) {
      for (Index b = 0; b < shape[0]; ++b) {
        for (Index h = 0; h < shape[1]; ++h) {
          for (Index d = 0; d < shape[3]; ++d) part(b, h, at, d) = whole(b, h, n, d);
        }
      }
    }
  }
  return part;
}

/// Expects that a rank's rows have the bits of those of the whole.
template <class T>
void expect_own_part(const Tensor<T>& part, const Tensor<T>& whole, const Sharding& rows,
                     const std::string& what) {
  const std::vector<T> got = part.values();
  const std::vector<T> want = own_part(whole, rows).values();
  EXPECT_EQ(got.size(), want.size()) << what;
  std::size_t wrong = 0;
  std::size_t first = 0;
  for (std::size_t n = want.size(); n-- > 0;) {
    if (bits_of(got[n]) == bits_of(want[n])) continue;
    ++wrong;
    first = n;
  }
  if (wrong == 0) return;
  ADD_FAILURE() << what << ": " << wrong << " numbers of rank " << rows.ranks().rank()
                << " differ, of " << want.size() << "; the first, " << first << ", is "
                << std::setprecision(21) << got[first] << " in place of " << want[first];
}

}  // namespace fovea_test
