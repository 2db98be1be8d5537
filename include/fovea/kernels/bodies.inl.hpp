// SPDX-License-Identifier: MIT
/// \file
/// Every kernel body, in the order of what uses what; compiled once per instruction-set level.

#include "fovea/kernels/integers.inl.hpp"
#include "fovea/kernels/register_block.inl.hpp"
#include "fovea/kernels/transpose.inl.hpp"

#include "fovea/kernels/softmax_tile.inl.hpp"

#include "fovea/kernels/softmax_band.inl.hpp"
#include "fovea/kernels/softmax_block.inl.hpp"

#include "fovea/kernels/softmax_choice.inl.hpp"

/// The kernels of this level; it must be a value that needs no code of this level to be made.
template <class T>
inline constexpr KernelTable<T> kKernels = {&softmax_block<T>};
