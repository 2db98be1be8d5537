// SPDX-License-Identifier: MIT
/// \file
/// FSAT attention with a causal option, which it cannot have, and without.
#include <fovea/attention.hpp>

#ifdef NOT_CAUSAL
const fovea::FsatAttention op({.max_length = 16});
const fovea::FatAttention fat({.scale = 0.5});
#else
const fovea::FsatAttention op({.max_length = 16, .causal = true});
const fovea::FatAttention fat;
#endif

int main() { return op.name() == nullptr || fat.name() == nullptr ? 1 : 0; }
