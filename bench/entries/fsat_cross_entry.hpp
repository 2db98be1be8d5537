// SPDX-License-Identifier: MIT
/// \file
/// Entries of FSAT with its cross: the cross of [N, H D] channels and the core over it, in turns
/// with full attention of the same heads.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "bench/entries/cross_entry.hpp"
#include "bench/entries/fsat_entry.hpp"
#include "bench/io/gaussian.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/layers/activation.hpp"

namespace bench {

/// The cross of the concatenated heads of q and k as f1 and f2, and the core over it. Key heads are
/// repeated for each query head that reads them, so that f1 and f2 have one width. The graph of a
/// training step has random edges, too.
class CrossedCall final : public PassCall {
 public:
  CrossedCall(const AllInputs<float>& in, const View<float>& out, Pass pass)
      : heads_(in.q.heads()),
        width_(in.q.width()),
        f1_(beside(f1_memory_, in.q, heads_)),
        f2_(beside(f2_memory_, in.k, heads_)),
        c_(c_memory_.resize(f1_.shape())),
        core_({{fsat_of(0, edges_of(pass))}}, reading_the_cross(in), out, pass) {
    // So that the cross, a sum of N products, is of the size of its factors.
    const float share = 1 / std::sqrt(static_cast<float>(in.q.rows()));
    for (Index n = 0; n < f1_.rows(); ++n) {
      for (Index c = 0; c < f1_.width(); ++c) f1_(0, 0, n, c) *= share;
    }
    if (pass == Pass::forward) return;
    for (const auto& [memory, to] :
         {std::pair(&d_k_memory_, &d_k_), std::pair(&d_c_memory_, &d_c_),
          std::pair(&d_f1_memory_, &d_f1_), std::pair(&d_f2_memory_, &d_f2_)}) {
      *to = memory->resize(f1_.shape());
    }
    core_.training()->grads.k = fovea::as_heads(d_k_, 0, heads_, width_);
    core_.training()->grads.v = fovea::as_heads(d_c_, 0, heads_, width_);
  }

  static EdgeSource edges_of(Pass pass) {
    return pass == Pass::forward ? EdgeSource::predicted : EdgeSource::both;
  }

  void forward(ThreadPool& pool) override {
    cross_.forward({f1_, f2_}, c_, pool);
    core_.forward(pool);
  }
  void backward(ThreadPool& pool) override {
    core_.backward(pool);
    for (Index n = 0; n < d_c_.rows(); ++n) {
      for (Index c = 0; c < d_c_.width(); ++c) d_c_(0, 0, n, c) += d_k_(0, 0, n, c);
    }
    cross_.backward({f1_, f2_}, d_c_, {d_f1_, d_f2_}, pool);
  }

  /// Of out, of the cross, and of the gradients of what is crossed.
  Error error(Index samples) override {
    Error error = core_.error(samples);
    error.add(detail::cross_error(f1_, f2_, c_, samples, detail::cross_value));
    if (d_c_.empty()) return error;
    error.add(detail::cross_error(d_c_, f2_, d_f1_, samples, detail::cross_gradient));
    error.add(detail::cross_error(d_c_, f1_, d_f2_, samples, detail::cross_gradient));
    return error;
  }

 private:
  /// [1, H, N, D] as [1, 1, N, `heads` D].
  static View<float> beside(fovea::Buffer<float>& memory, const View<const float>& x, Index heads) {
    const View<float> to = memory.resize(1, x.rows(), heads * x.width());
    for (Index h = 0; h < heads; ++h) {
      const Index from = h / (heads / x.heads());
      for (Index n = 0; n < x.rows(); ++n) {
        for (Index d = 0; d < x.width(); ++d) to(0, 0, n, h * x.width() + d) = x(0, from, n, d);
      }
    }
    return to;
  }

  AllInputs<float> reading_the_cross(const AllInputs<float>& in) const {
    AllInputs<float> of = in;
    of.k = of.v = fovea::as_heads(View<const float>(c_), 0, heads_, width_);
    return of;
  }

  Index heads_;
  Index width_;
  fovea::Buffer<float> f1_memory_, f2_memory_, c_memory_;
  fovea::Buffer<float> d_k_memory_, d_c_memory_, d_f1_memory_, d_f2_memory_;
  View<float> f1_, f2_, c_;
  View<float> d_k_, d_c_, d_f1_, d_f2_;  // of training
  OperatorCall<FsatSubject, float, float> core_;
  HiddenStateCross cross_{{FftPlanning::measure}};
};

/// Forward passes, or training steps.
inline Entry fsat_cross_entry(Names names, std::vector<Family> families) {
  const Pass pass = names.pass;
  const bool is_training = pass == Pass::training;
  Entry entry = entry_of(std::move(names), FsatSubject{}, std::move(families));
  entry.own_flops = [=](const AttentionShape& s) {
    return static_cast<double>(s.query_heads) * transform_flops(s, is_training ? 7 : 2.5);
  };
  entry.obstacle = one_width_for("cross");
  const ForwardPasses<fovea::FullAttention> full{"full attention", {fovea::FullAttention{}}};
  if (!is_training) entry.other = full.name;
  entry.f32 = {
      [=](const AllInputs<float>& in, const View<float>& out) {
        Prepared made = passes_of(pass, std::make_shared<CrossedCall>(in, out, pass));
        if (!is_training) made.other = full(in);
        return made;
      },
      [=](const AttentionShape& s, Index workers) {
        const FsatAttention op = fsat_of(s.keys, CrossedCall::edges_of(pass));
        const HiddenStateCross cross;
        const Index channels = s.query_heads * s.width;
        return is_training ? op.backward_workspace_bytes<float>(fsat_shape(s), workers) +
                                 cross.backward_workspace_bytes<float>(1, s.keys, channels, workers)
                           : op.workspace_bytes<float>(fsat_shape(s), workers) +
                                 cross.workspace_bytes<float>(1, s.keys, channels, workers);
      }};
  return entry;
}

}  // namespace bench
