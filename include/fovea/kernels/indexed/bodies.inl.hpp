// SPDX-License-Identifier: MIT
/// \file
/// The kernel bodies of attention over lists of keys, in the order of what uses what; compiled once
/// per instruction-set level.

#include "fovea/kernels/indexed/gather.inl.hpp"

#include "fovea/kernels/indexed/gather_short.inl.hpp"

#include "fovea/kernels/indexed/gather_grad.inl.hpp"

#include "fovea/kernels/indexed/normal_density.inl.hpp"
