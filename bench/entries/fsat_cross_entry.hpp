// SPDX-License-Identifier: MIT
/// \file
/// Entries of FSAT with its cross: the cross of [N, H D] channels and the core over it, in turns
/// with full attention of the same heads; and the whole layer, projections and feature maps
/// included.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "bench/entries/cross_entry.hpp"
#include "bench/entries/fsat_entry.hpp"
#include "bench/io/gaussian.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/layers/fsat_layer.hpp"

namespace bench {

/// q and k of all heads side by side as f1 and f2, and what the core reads of their cross. A key
/// head stands there once for each query head that reads it: f1 and f2 are of one width.
class CrossedHeads {
 public:
  explicit CrossedHeads(const AllInputs<float>& in)
      : heads_(in.q.heads()),
        width_(in.q.width()),
        f1_(beside(f1_memory_, in.q, heads_)),
        f2_(beside(f2_memory_, in.k, heads_)),
        c_(c_memory_.resize(1, in.q.rows(), heads_ * width_)),
        data_(crossed(in)) {
    // So that the cross, a sum of N products, is of the size of its factors.
    const float share = 1 / std::sqrt(static_cast<float>(in.q.rows()));
    for (Index n = 0; n < f1_.rows(); ++n) {
      for (Index c = 0; c < f1_.width(); ++c) f1_(0, 0, n, c) *= share;
    }
  }
  CrossedHeads(const CrossedHeads&) = delete;
  CrossedHeads& operator=(const CrossedHeads&) = delete;

  void run(const View<float>& out, ThreadPool& pool) const {
    cross_.forward(CrossInputs<float>{f1_, f2_}, c_, pool);
    data_.op.forward(data_.inputs, out, pool);
  }

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

  AllInputs<float> crossed(const AllInputs<float>& in) const {
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

inline Entry fsat_cross_entry(Names names, std::vector<Family> families) {
  Entry entry = detail::fsat_entry(std::move(names), std::move(families));
  entry.own_flops = [](const AttentionShape& s) {
    return static_cast<double>(s.query_heads) * transform_flops(s, 2.5);
  };
  entry.obstacle = [](const AttentionShape& s) -> std::string {
    if (s.value_width == s.width) return {};
    return "the cross has the width of q, which is " + std::to_string(s.width) + "; v has " +
           std::to_string(s.value_width);
  };
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

/// The layer of width H D on noise, with its activations.
class FsatLayerRun {
 public:
  explicit FsatLayerRun(const AttentionShape& shape)
      : n_(shape.keys), width_(shape.query_heads * shape.width), x_(gaussians(1, 0, n_ * width_)) {
    fovea::FsatLayerOptions options;
    options.width = width_;
    options.heads = shape.query_heads;
    options.dominant = kDominantIndices;
    options.attention.max_length = n_;
    fovea::Initialiser initialiser(1);
    layer_ = fovea::FsatLayer<float>(options, initialiser);
    layer_.set_training(1);
  }

  void forward(ThreadPool& pool) {
    layer_.forward(View<const float>(x_.data(), shape()), y_.resize(shape()), saved_, pool);
  }

  /// The gradient of |y|^2 / 2.
  void backward(ThreadPool& pool) {
    layer_.backward(View<const float>(x_.data(), shape()), saved_, y_.view(), d_x_.resize(shape()),
                    pool);
  }

 private:
  fovea::Shape shape() const { return {1, 1, n_, width_}; }

  Index n_;
  Index width_;
  std::vector<float> x_;
  fovea::FsatLayer<float> layer_;
  fovea::FsatLayer<float>::Saved saved_;
  fovea::Buffer<float> y_, d_x_;
};

/// Training passes; tests hold what they compute. Flops are those of the matrix products with
/// square weights: two feature maps, q, k, v and the output; backward has twice as many.
inline Entry fsat_layer_entry(Names names, std::vector<Family> families) {
  const bool is_backward = names.pass == Pass::backward;
  Entry entry = detail::fsat_entry(std::move(names), std::move(families));
  entry.visible_pairs = [](const AttentionShape&) { return Index{0}; };
  entry.own_flops = [=](const AttentionShape& s) {
    const auto width = static_cast<double>(s.query_heads * s.width);
    const double products = 6 * 2 * static_cast<double>(s.keys) * width * width;
    return (is_backward ? 2 : 1) * products;
  };
  entry.f32 = {[=](const AllInputs<float>& in, const View<float>&) {
                 const auto layer = std::make_shared<FsatLayerRun>(fovea::shape_of(in));
                 ThreadPool serial(1);
                 layer->forward(serial);
                 return Prepared{[=](ThreadPool& pool) {
                                   is_backward ? layer->backward(pool) : layer->forward(pool);
                                 },
                                 {}};
               },
               [](const AttentionShape& s, Index workers) {
                 return fsat_of(s.keys).workspace_bytes<float>(fsat_shape(s), workers);
               }};
  return entry;
}

inline std::vector<Entry> fsat_cross_entries() {
  const std::vector<Family> lengths = {{.lengths = {1024, 4096, 16384}}};
  const std::vector<Family> layer = {{.lengths = {1024, 4096}}, {.threads = 2, .lengths = {4096}}};
  // clang-format off
  return {
      fsat_cross_entry({"fsat", "cross,random:4", "FSAT, random indices"}, lengths),
      fsat_layer_entry({"fsat_layer", "training:4"}, layer),
      fsat_layer_entry({.op = "fsat_layer", .variant = "training:4", .pass = Pass::backward}, layer),
  };
  // clang-format on
}

}  // namespace bench
