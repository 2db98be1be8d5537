// SPDX-License-Identifier: MIT
/// \file
/// The kernel bodies of attention over sorted rows, compiled once per instruction-set level.

#include "fovea/kernels/sorting/buckets.inl.hpp"

#include "fovea/kernels/sorting/log_columns.inl.hpp"

#include "fovea/kernels/sorting/merge_rows.inl.hpp"

#include "fovea/kernels/sorting/unit_rows.inl.hpp"
