// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of linear, delta-rule, FMM and Performer attention over a sharded sequence.
/// Ranks exchange states and sums of fixed size; rows where ranges end inside a segment of
/// kLinearSegment rows; and, for a near field, margin rows.
#pragma once

#include "fovea/distributed/linear_forward.hpp"
