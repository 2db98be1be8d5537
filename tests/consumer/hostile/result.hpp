// SPDX-License-Identifier: MIT
/// \file
/// The interface of a translation unit of the hostile program: one family of operators, compiled
/// with its own flags. No type of fovea is in this interface.
#pragma once

#include <cstdint>

namespace hostile {

/// What a unit computed.
struct Result {
  int level;           ///< the instruction-set level at which it ran
  std::uint64_t bits;  ///< a hash of the bits of all results
  double sum;          ///< all results, each times a different weight
  double size;         ///< the sum of the magnitudes of these products
};

/// Calls every operator of a family, at most at `level` (1, 3 or 4) and with that many threads.
using Unit = Result (*)(int level, int threads);

}  // namespace hostile

// HOSTILE_UNIT(name): what a unit is called, with the suffix that its flags have given it.
#if !defined(HOSTILE_SUFFIX)
#define HOSTILE_SUFFIX
#endif
#define HOSTILE_JOIN_(a, b) a##b
#define HOSTILE_JOIN(a, b) HOSTILE_JOIN_(a, b)
#define HOSTILE_UNIT(name) __attribute__((visibility("default"))) HOSTILE_JOIN(name, HOSTILE_SUFFIX)
