// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of attention to gathered keys over a sharded sequence. The gradients of
/// queries need the keys that they list; those of keys need the queries that list them. Both are
/// exchanged, and nothing is reduced across ranks.
#pragma once

#include "fovea/distributed/indexed_forward.hpp"
