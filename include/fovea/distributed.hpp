// SPDX-License-Identifier: MIT
/// \file
/// Everything in fovea/distributed: attention over sequences that are spread over the ranks of MPI.
/// It needs MPI 3 (CMake: the target fovea::mpi) and POSIX.
#pragma once

#include "fovea/distributed/agreement.hpp"
#include "fovea/distributed/call.hpp"
#include "fovea/distributed/communicator.hpp"
#include "fovea/distributed/exchange.hpp"
#include "fovea/distributed/exchange_plan.hpp"
#include "fovea/distributed/far_field_chain.hpp"
#include "fovea/distributed/far_field_totals.hpp"
#include "fovea/distributed/linear_forward.hpp"
#include "fovea/distributed/mpi_type.hpp"
#include "fovea/distributed/own_range.hpp"
#include "fovea/distributed/redistribute.hpp"
#include "fovea/distributed/requests.hpp"
#include "fovea/distributed/row_layout.hpp"
#include "fovea/distributed/row_set.hpp"
#include "fovea/distributed/row_tensors.hpp"
#include "fovea/distributed/row_window.hpp"
#include "fovea/distributed/rows.hpp"
#include "fovea/distributed/segment_totals.hpp"
#include "fovea/distributed/smart_bird_forward.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_call.hpp"
#include "fovea/distributed/softmax_forward.hpp"
#include "fovea/distributed/traffic.hpp"
