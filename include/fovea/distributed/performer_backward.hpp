// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Performer attention over a sharded sequence. Cost: if causal, a state of
/// about 2 R Dv numbers for each query head is sent at each end of a range of rows, and then one
/// for each key head back. If not, sums of the rank's segments are sent and totals received, of
/// tokens and then of rows. With the gradient of the projection each state has 2 R D numbers more,
/// and all ranks get the last ones; if not causal, its sum goes over all ranges for each head. Rows
/// of segments that span several ranks are sent to the rank of their first row, and their gradients
/// back. Memory: the rank's rows twice, and states or sums; for the gradient of the projection 2 R
/// D numbers for each head, or if not causal for each head and segment of the rank.
#pragma once

#include "fovea/attention/performer.hpp"
#include "fovea/distributed/linear_backward.hpp"
