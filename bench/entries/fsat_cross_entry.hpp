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

/// Concatenated heads of q and k as f1 and f2, and the core's inputs from their cross. Key heads
/// are repeated for each query head that reads them, so that f1 and f2 have one width.
class CrossedHeads {
 public:
  explicit CrossedHeads(const AllInputs<float>& in, EdgeSource edges = EdgeSource::predicted)
      : heads_(in.q.heads()),
        width_(in.q.width()),
        f1_(beside(f1_memory_, in.q, heads_)),
        f2_(beside(f2_memory_, in.k, heads_)),
        c_(c_memory_.resize(1, in.q.rows(), heads_ * width_)),
        data_(reading_the_cross(in), edges) {
    // So that the cross, a sum of N products, is of the size of its factors.
    const float share = 1 / std::sqrt(static_cast<float>(in.q.rows()));
    for (Index n = 0; n < f1_.rows(); ++n) {
      for (Index c = 0; c < f1_.width(); ++c) f1_(0, 0, n, c) *= share;
    }
  }
  CrossedHeads(const CrossedHeads&) = delete;
  CrossedHeads& operator=(const CrossedHeads&) = delete;

  void run(const View<float>& out, ThreadPool& pool) const {
    cross_.forward(factors(), c_, pool);
    data_.op.forward(data_.inputs, out, pool);
  }

  const FsatData<float>& data() const { return data_; }
  const HiddenStateCross& cross() const { return cross_; }
  CrossInputs<float> factors() const { return {f1_, f2_}; }
  const View<float>& crossed() const { return c_; }
  Index channels() const { return heads_ * width_; }
  /// A tensor of the shape of the cross as heads.
  View<float> heads_of(const View<float>& x) const { return fovea::as_heads(x, 0, heads_, width_); }

  Error error(const View<const float>& out, Index samples) const {
    Error error = detail::fsat_error(data_, out, samples);
    error.add(detail::cross_error(f1_, f2_, c_, samples, detail::cross_value));
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
  View<float> f1_, f2_, c_;
  FsatData<float> data_;
  HiddenStateCross cross_{{FftPlanning::measure}};
};

/// A training step: the graph has random edges, too.
class CrossedTraining {
 public:
  CrossedTraining(const AllInputs<float>& in, const View<float>& out)
      : heads_(in, EdgeSource::both),
        out_(out),
        work_(heads_.data().inputs, out),
        d_dominant_(heads_.data().dominant.size()),
        d_k_(d_k_memory_.resize(1, in.q.rows(), heads_.channels())),
        d_c_(d_c_memory_.resize(1, in.q.rows(), heads_.channels())),
        d_f1_(d_f1_memory_.resize(1, in.q.rows(), heads_.channels())),
        d_f2_(d_f2_memory_.resize(1, in.q.rows(), heads_.channels())) {
    work_.grads.k = heads_.heads_of(d_k_);
    work_.grads.v = heads_.heads_of(d_c_);
    work_.grads.dominant = View<float>(d_dominant_.data(), heads_.data().inputs.dominant.shape());
  }
  CrossedTraining(const CrossedTraining&) = delete;
  CrossedTraining& operator=(const CrossedTraining&) = delete;

  void run(ThreadPool& pool) const {
    const FsatData<float>& data = heads_.data();
    heads_.cross().forward(heads_.factors(), heads_.crossed(), pool);
    data.op.forward(data.inputs, out_, work_.saved, pool);
    data.op.backward(data.inputs, out_, work_.saved, work_.d_out, work_.grads, pool);
    for (Index n = 0; n < d_c_.rows(); ++n) {
      for (Index c = 0; c < d_c_.width(); ++c) d_c_(0, 0, n, c) += d_k_(0, 0, n, c);
    }
    heads_.cross().backward(heads_.factors(), d_c_, {d_f1_, d_f2_}, pool);
  }

  /// Of out, of the cross, and of the gradients of what is crossed.
  Error error(Index samples) const {
    const auto [f1, f2] = std::pair(heads_.factors().f1, heads_.factors().f2);
    Error error = heads_.error(out_, samples);
    error.add(detail::cross_error(d_c_, f2, d_f1_, samples, detail::cross_gradient));
    error.add(detail::cross_error(d_c_, f1, d_f2_, samples, detail::cross_gradient));
    return error;
  }

 private:
  CrossedHeads heads_;
  View<float> out_;
  Training<float> work_;
  std::vector<float> d_dominant_;
  fovea::Buffer<float> d_k_memory_, d_c_memory_, d_f1_memory_, d_f2_memory_;
  View<float> d_k_, d_c_, d_f1_, d_f2_;
};

/// Forward passes, or training steps.
inline Entry fsat_cross_entry(Names names, std::vector<Family> families) {
  const bool is_training = names.pass == Pass::training;
  Entry entry = detail::fsat_entry(std::move(names), std::move(families));
  entry.own_flops = [=](const AttentionShape& s) {
    return static_cast<double>(s.query_heads) * transform_flops(s, is_training ? 7 : 2.5);
  };
  entry.obstacle = [](const AttentionShape& s) -> std::string {
    if (s.value_width == s.width) return {};
    return "the cross has the width of q, which is " + std::to_string(s.width) + "; v has " +
           std::to_string(s.value_width);
  };
  if (is_training) {
    entry.f32 = {[](const AllInputs<float>& in, const View<float>& out) {
                   const auto work = std::make_shared<const CrossedTraining>(in, out);
                   return Prepared{[=](ThreadPool& pool) { work->run(pool); },
                                   [=](Index samples) { return work->error(samples); }};
                 },
                 [](const AttentionShape& s, Index workers) {
                   return fsat_of(s.keys, EdgeSource::both)
                              .backward_workspace_bytes<float>(fsat_shape(s), workers) +
                          HiddenStateCross{}.backward_workspace_bytes<float>(
                              1, s.keys, s.query_heads * s.width, workers);
                 }};
    return entry;
  }
  entry.other = "full attention";
  entry.f32 = {[](const AllInputs<float>& in, const View<float>& out) {
                 const auto crossed = std::make_shared<CrossedHeads>(in);
                 return Prepared{
                     [=](ThreadPool& pool) { crossed->run(out, pool); },
                     [=](Index samples) { return crossed->error(out, samples); },
                     {},
                     [=](ThreadPool& pool) { fovea::FullAttention{}.forward(in, out, pool); }};
               },
               [](const AttentionShape& s, Index workers) {
                 return fsat_of(s.keys).workspace_bytes<float>(fsat_shape(s), workers) +
                        HiddenStateCross{}.workspace_bytes<float>(1, s.keys,
                                                                  s.query_heads * s.width, workers);
               }};
  return entry;
}

}  // namespace bench
