// SPDX-License-Identifier: MIT
/// \file
/// A decoder of FSAT attention, which does not exist, and of an operator that has one.
#include <fovea/attention.hpp>

#ifdef WITH_DECODER
const fovea::FullAttention op({.causal = true});
#else
const fovea::FsatAttention op({.max_length = 16});
#endif

int main() { op.decoder<float>(fovea::DecoderShape{}); }
