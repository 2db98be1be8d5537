// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of FSAT attention over a sequence that is spread over ranks. The gradients of
/// queries need the keys that they have edges to, those of keys and of dominant indices the queries
/// that have edges to them; each come to the other, and nothing is added up between ranks.
#pragma once

#include "fovea/distributed/fsat/calls.hpp"
