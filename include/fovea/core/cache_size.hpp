// SPDX-License-Identifier: MIT
/// \file
/// The size of the cache behind the first one, for choices between forms that give the same bits.
#pragma once

#include "fovea/core/config.hpp"

#if defined(__unix__)
#include <unistd.h>
#endif

FOVEA_NAMESPACE_BEGIN

/// The bytes of a core's second cache as the system tells them, or 512 KiB where it does not. It is
/// the same each time.
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
