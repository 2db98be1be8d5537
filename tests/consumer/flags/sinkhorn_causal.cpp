// SPDX-License-Identifier: MIT
/// \file
/// Sinkhorn attention with a causal option, which it cannot have, and without; and its decoder,
/// which it has not.
#include <fovea/attention.hpp>

#ifdef NOT_CAUSAL
const fovea::SinkhornAttention op({.block = 16});
#else
const fovea::SinkhornAttention op({.block = 16, .causal = true});
#endif

int main() {
#ifdef DECODER
  op.decoder<float>({});
#endif
  return op.name() == nullptr ? 1 : 0;
}
