// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of FSAT attention over a sharded sequence. The gradients of queries need the
/// keys they have edges to; those of keys and dominant indices need the queries with edges to them.
/// Both are exchanged, and nothing is reduced across ranks.
#pragma once

#include "fovea/distributed/fsat_forward.hpp"
