// SPDX-License-Identifier: MIT
/// \file
/// The size of the second-level cache, for choosing between variants with identical results.
#pragma once

#include "fovea/core/config.hpp"

#if defined(__unix__)
#include <unistd.h>
#endif

FOVEA_NAMESPACE_BEGIN

/// The size of a core's L2 cache in bytes as the system reports it, or 512 KiB if it does not.
/// Constant within a process.
inline Index second_cache_bytes() noexcept {
  static const Index bytes = [] {
    long told = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    told = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return told > 0 ? static_cast<Index>(told) : Index{512} << 10;
  }();
  return bytes;
}

FOVEA_NAMESPACE_END
