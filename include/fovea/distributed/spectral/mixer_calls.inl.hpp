// SPDX-License-Identifier: MIT
/// \file
/// Included by mixer_calls.hpp, which documents it.
#pragma once

#include <memory>
#include <string>

#include "fovea/distributed/spectral/mixer_calls.hpp"
#include "fovea/distributed/spectral/mixer_pass.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Describes the parts of a call that must be equal on all ranks.
template <class T>
std::string mixer_text(const char* pass, const char* tensor, const View<const T>& x,
                       const Sharding& rows) {
  std::string text(FourierMixer::name());
  text.append(pass).append(" of ").append(std::to_string(rows.count())).append(" rows, ");
  text.append(std::to_string(sizeof(T))).append(" bytes per number, ").append(tensor).append(" ");
  return text.append(sizes_text(x)).append(" (batch, heads, width)");
}

/// Checks this rank's arguments. \param check_tensors checks its tensors
/// \throws std::invalid_argument
template <class T, class Check>
void check_mixer(const char* tensor, const View<const T>& x, const Sharding& rows,
                 const Check& check_tensors) {
  const char* const name = FourierMixer::name();
  check_own_rows(name, tensor, x, rows);
  check_tensors();
  if (rows.count() <= FourierMixer::kMostElements) return;
  refuse(name, "rows of the sequence", std::to_string(rows.count()),
         "at most " + std::to_string(FourierMixer::kMostElements) + ", the limit of FFTW");
}

}  // namespace detail

template <class T>
CommStats MixerCalls<T>::forward(const FourierMixer& op, const View<const T>& x, const View<T>& out,
                                 const Sharding& rows, const detail::CollectiveCall& call) {
  const auto check = [&] {
    detail::check_mixer<T>("x", x, rows, [&] { op.template check<T>(x, out); });
  };
  return detail::run_call(rows, call, detail::mixer_text<T>(".forward", "x", x, rows), check,
                          [&](const ExecutorRef& threads) {
                            return std::make_unique<MixerPass<T>>(op.options, x, out, rows,
                                                                  threads);
                          });
}

template <class T>
CommStats MixerCalls<T>::backward(const FourierMixer& op, const View<const T>& d_out,
                                  const View<T>& d_x, const Sharding& rows,
                                  const detail::CollectiveCall& call) {
  const auto check = [&] {
    detail::check_mixer<T>("d_out", d_out, rows,
                           [&] { op.template check_backward<T>(d_out, d_x); });
  };
  return detail::run_call(rows, call, detail::mixer_text<T>(".backward", "d_out", d_out, rows),
                          check, [&](const ExecutorRef& threads) {
                            return std::make_unique<MixerPass<T>>(op.options, d_out, d_x, rows,
                                                                  threads);
                          });
}

FOVEA_FLOAT_AND_DOUBLE_PASSES(MixerCalls)

}  // namespace distributed

FOVEA_NAMESPACE_END
