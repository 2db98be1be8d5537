// SPDX-License-Identifier: MIT
/// \file
/// A decoder of FSAT, indexed or Reformer attention, which does not exist, and of an operator that
/// has one.
#include <fovea/attention.hpp>

#ifdef WITH_DECODER
const fovea::FullAttention op({.causal = true});
#elif defined(INDEXED)
const fovea::IndexedAttention op;
#elif defined(REFORMER)
const fovea::ReformerAttention op;
#else
const fovea::FsatAttention op({.max_length = 16});
#endif

int main() { op.decoder<float>(fovea::DecoderShape{}); }
