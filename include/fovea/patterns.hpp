// SPDX-License-Identifier: MIT
/// \file
/// Includes the patterns, which define the keys that each query sees.
#pragma once

#include "fovea/patterns/any_pattern.hpp"
#include "fovea/patterns/block_list.hpp"
#include "fovea/patterns/block_window.hpp"
#include "fovea/patterns/combine.hpp"
#include "fovea/patterns/enumerated.hpp"
#include "fovea/patterns/fixed.hpp"
#include "fovea/patterns/global.hpp"
#include "fovea/patterns/interval_plan.hpp"
#include "fovea/patterns/intervals.hpp"
#include "fovea/patterns/partition.hpp"
#include "fovea/patterns/passes.hpp"
#include "fovea/patterns/pattern.hpp"
#include "fovea/patterns/plan_part.hpp"
#include "fovea/patterns/plan_stats.hpp"
#include "fovea/patterns/random_blocks.hpp"
#include "fovea/patterns/strided.hpp"
#include "fovea/patterns/window.hpp"
#include "fovea/patterns/window_and_tokens.hpp"
