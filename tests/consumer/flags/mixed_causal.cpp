// SPDX-License-Identifier: MIT
/// \file
/// An operator whose keys are mixtures of tokens, with a causal option or a decoder, which it
/// cannot have, and without.
#include <fovea/attention.hpp>

#if defined(LINFORMER)
using Options = fovea::LinformerOptions;
using Operator = fovea::LinformerAttention;
#elif defined(NYSTROEM)
using Options = fovea::NystroemOptions;
using Operator = fovea::NystroemAttention;
#else
using Options = fovea::LunaOptions;
using Operator = fovea::LunaPack;
#endif

#ifdef NOT_CAUSAL
const Operator op(Options{.scale = 0.5});
#else
const Operator op(Options{.causal = true});
#endif

int main() {
#ifdef DECODER
  op.decoder<float>({});
#endif
  return op.name() == nullptr ? 1 : 0;
}
