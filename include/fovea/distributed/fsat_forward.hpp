// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of FSAT attention over a sharded sequence. Each key determines the queries with
/// an edge to it: its row is sent to their ranks, which build the graph of their own queries.
#pragma once

#include "fovea/distributed/fsat/calls.hpp"
