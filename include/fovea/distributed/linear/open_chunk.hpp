// SPDX-License-Identifier: MIT
/// \file
/// The last token chunk of a causal far field, which other ranks' rows may read.
#pragma once

#include "fovea/kernels/linear/delta_rule.hpp"
#include "fovea/kernels/linear/sums.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

static_assert(kDeltaChunk == kLinearChunk, "one open chunk is that of all terms");

/// The rows of the last chunk with tokens, which later rows read token by token; empty without
/// tokens.
inline Range open_chunk(Index key_end) {
  return {(key_end - 1) / kLinearChunk * kLinearChunk, key_end};
}

}  // namespace distributed

FOVEA_NAMESPACE_END
