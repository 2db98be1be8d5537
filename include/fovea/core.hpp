// SPDX-License-Identifier: MIT
/// \file
/// Includes what all other parts use: views, errors, executors, random numbers and scratch memory.
/// Eigen's tensors as arguments need fovea/core/eigen.hpp, too.
#pragma once

#include "fovea/core/arena.hpp"
#include "fovea/core/cache_size.hpp"
#include "fovea/core/config.hpp"
#include "fovea/core/error.hpp"
#include "fovea/core/executor.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/key_run.hpp"
#include "fovea/core/members.hpp"
#include "fovea/core/on_error.hpp"
#include "fovea/core/overlap.hpp"
#include "fovea/core/philox.hpp"
#include "fovea/core/rounded.hpp"
#include "fovea/core/scalar.hpp"
#include "fovea/core/tensor_check.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/core/view.hpp"
#include "fovea/core/workspace.hpp"
