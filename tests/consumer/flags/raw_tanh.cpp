// SPDX-License-Identifier: MIT
/// \file
/// A feature map that changes sign, with and without a policy for its denominators.
#include <fovea/attention.hpp>

#ifdef WITH_POLICY
const fovea::LinearAttention<fovea::Tanh> op{{.denominator = fovea::Denominator::zero_row()}};
#else
const fovea::LinearAttention<fovea::Tanh> op{{.causal = true}};
#endif

int main() { return op.name() == nullptr ? 1 : 0; }
