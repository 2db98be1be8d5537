// SPDX-License-Identifier: MIT
/// \file
/// The kernel bodies of linear attention and the delta rule, in dependency order, compiled once per
/// instruction-set level.

#include "fovea/kernels/linear/feature_map.inl.hpp"

#include "fovea/kernels/linear/running_state.inl.hpp"

#include "fovea/kernels/linear/segments.inl.hpp"

#include "fovea/kernels/linear/rows.inl.hpp"

#include "fovea/kernels/linear/output.inl.hpp"

#include "fovea/kernels/linear/stream.inl.hpp"

#include "fovea/kernels/linear/read.inl.hpp"

#include "fovea/kernels/linear/delta_rows.inl.hpp"

#include "fovea/kernels/linear/delta_rule.inl.hpp"

#include "fovea/kernels/linear/grad_products.inl.hpp"

#include "fovea/kernels/linear/grad_state.inl.hpp"

#include "fovea/kernels/linear/grad_rows.inl.hpp"

#include "fovea/kernels/linear/grad_keys.inl.hpp"

#include "fovea/kernels/linear/grad.inl.hpp"

#include "fovea/kernels/linear/grad_shared.inl.hpp"

#include "fovea/kernels/linear/grad_blocks.inl.hpp"

#include "fovea/kernels/linear/grad_total.inl.hpp"

#include "fovea/kernels/linear/random_features.inl.hpp"

#include "fovea/kernels/linear/random_features_grad.inl.hpp"

#include "fovea/kernels/linear/delta_grad_rows.inl.hpp"

#include "fovea/kernels/linear/delta_grad.inl.hpp"
