// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of attention over lists of keys over a sequence that is spread over ranks. The
/// gradients of queries need the keys that they list, those of keys the queries that list them;
/// each come to the other, and nothing is added up between ranks.
#pragma once

#include "fovea/distributed/indexed/calls.hpp"
