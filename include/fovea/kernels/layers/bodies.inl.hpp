// SPDX-License-Identifier: MIT
/// \file
/// The kernel bodies of the layers, in dependency order, compiled once per instruction-set level.

#include "fovea/kernels/layers/columns.inl.hpp"

#include "fovea/kernels/layers/product.inl.hpp"

#include "fovea/kernels/layers/norm.inl.hpp"

#include "fovea/kernels/layers/elementwise.inl.hpp"

#include "fovea/kernels/layers/gelu.inl.hpp"

#include "fovea/kernels/layers/gated.inl.hpp"

#include "fovea/kernels/layers/activation.inl.hpp"

#include "fovea/kernels/layers/rotary.inl.hpp"

#include "fovea/kernels/layers/convolution.inl.hpp"

#include "fovea/kernels/layers/cross_entropy.inl.hpp"

#include "fovea/kernels/layers/adam.inl.hpp"
