// SPDX-License-Identifier: MIT
/// \file
/// The members of operators that a library compiles once for all (kernels/unit.hpp). Operators
/// declare them and define them in another file, which only header-only units include.
#pragma once

#include "fovea/attention/call/checked_calls.inl.hpp"
#include "fovea/kernels/unit.hpp"

// In a unit that compiles passes, FOVEA_COMPILED_FORWARD(Op) instantiates what calls of an
// operator's forward pass need, for all scalars, and FOVEA_COMPILED_BACKWARD(Op) the rest.
// FOVEA_COMPILED_FLOAT_AND_DOUBLE_FORWARD(Op) replaces the former for an operator without 16-bit
// types.
#define FOVEA_FORWARD_MEMBERS(Op, T)                                                       \
  template void CheckedCalls<Op>::check<T>(const InputsOf<Op, T>&, const View<T>&,         \
                                           const SavedOf<Op, T>&) const;                   \
  template void CheckedCalls<Op>::check_tensors<T>(const InputsOf<Op, T>&, const View<T>&, \
                                                   const SavedOf<Op, T>&) const;           \
  template void Op::run<T>(const InputsOf<Op, T>&, const View<T>&, const SavedOf<Op, T>&,  \
                           const ExecutorRef&) const;
#define FOVEA_BACKWARD_MEMBERS(Op, T)                                                             \
  template void CheckedCalls<Op>::check_backward<T>(const InputsOf<Op, T>&, const View<const T>&, \
                                                    const SavedOf<Op, T>&, const View<const T>&,  \
                                                    const GradsOf<Op, T>&) const;                 \
  template void CheckedCalls<Op>::check_backward_tensors<T>(                                      \
      const InputsOf<Op, T>&, const View<const T>&, const SavedOf<Op, T>&, const View<const T>&,  \
      const GradsOf<Op, T>&) const;                                                               \
  template void Op::run_backward<T>(const InputsOf<Op, T>&, const View<const T>&,                 \
                                    const SavedOf<Op, T>&, const View<const T>&,                  \
                                    const GradsOf<Op, T>&, const ExecutorRef&) const;

#define FOVEA_COMPILED_FLOAT_AND_DOUBLE_FORWARD(Op) \
  FOVEA_IN_FLOAT_UNIT(FOVEA_FORWARD_MEMBERS, Op)    \
  FOVEA_IN_DOUBLE_UNIT(FOVEA_FORWARD_MEMBERS, Op)
#define FOVEA_COMPILED_FORWARD(Op)            \
  FOVEA_COMPILED_FLOAT_AND_DOUBLE_FORWARD(Op) \
  FOVEA_IN_SHORT_UNIT(FOVEA_FORWARD_MEMBERS, Op)
#define FOVEA_COMPILED_BACKWARD(Op)               \
  FOVEA_IN_FLOAT_UNIT(FOVEA_BACKWARD_MEMBERS, Op) \
  FOVEA_IN_DOUBLE_UNIT(FOVEA_BACKWARD_MEMBERS, Op)
