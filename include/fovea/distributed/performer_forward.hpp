// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of Performer attention over a sharded sequence, as for other operators with a
/// far field, but states and totals come with the references of R features: if causal, a state has
/// about (4 Dv + 100) R numbers. Rows of segments that span several ranks are sent.
#pragma once

#include "fovea/attention/performer.hpp"
#include "fovea/distributed/linear_forward.hpp"
