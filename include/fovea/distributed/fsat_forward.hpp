// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of FSAT attention over a sequence that is spread over ranks. Every key knows
/// the queries that it has an edge from: its row goes to their ranks, which build the graph of
/// their own queries.
#pragma once

#include "fovea/distributed/fsat/calls.hpp"
