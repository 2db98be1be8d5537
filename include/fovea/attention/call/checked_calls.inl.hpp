// SPDX-License-Identifier: MIT
/// \file
/// Included by checked_calls.hpp, where it is documented.
#pragma once

#include <string_view>

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/call/checked_calls.hpp"

FOVEA_NAMESPACE_BEGIN

template <class Op>
template <class T>
void CheckedCalls<Op>::check(const InputsOf<Op, T>& inputs, const View<T>& out,
                             const SavedOf<Op, T>& saved) const {
  check_tensors(inputs, out, saved);
  op().check_values(inputs);
}

template <class Op>
template <class T>
void CheckedCalls<Op>::check_tensors(const InputsOf<Op, T>& inputs, const View<T>& out,
                                     const SavedOf<Op, T>& saved) const {
  op().check_read(inputs);
  check_outputs(Op::name(), inputs, out, saved,
                [&](std::string_view tensor) { return op().saved_shape(inputs, tensor); });
}

template <class Op>
template <class T>
void CheckedCalls<Op>::check_backward(const InputsOf<Op, T>& inputs, const View<const T>& out,
                                      const SavedOf<Op, T>& saved, const View<const T>& d_out,
                                      const GradsOf<Op, T>& grads) const {
  check_backward_tensors(inputs, out, saved, d_out, grads);
  op().check_values(inputs);
}

template <class Op>
template <class T>
void CheckedCalls<Op>::check_backward_tensors(const InputsOf<Op, T>& inputs,
                                              const View<const T>& out, const SavedOf<Op, T>& saved,
                                              const View<const T>& d_out,
                                              const GradsOf<Op, T>& grads) const {
  op().check_read(inputs);
  check_rows(Op::name(), "out", inputs, out);
  check_rows(Op::name(), "d_out", inputs, d_out);
  if constexpr (Op::kNeedsLse) check_lse(Op::name(), inputs, saved);
  op().check_saved(inputs, saved);
  check_grads(Op::name(), inputs, out, saved, d_out, grads);
}

template <class Op>
template <class In, class S>
void CheckedCalls<Op>::check_saved(const In& inputs, const S& saved) const {
  saved.for_each_tensor([&](const char* name, const auto& x) {
    if (x.empty() || std::string_view(name) == "lse") return;
    detail::check_made_shape(Op::name(), name, x.shape(), op().saved_shape(inputs, name));
  });
}

FOVEA_NAMESPACE_END
