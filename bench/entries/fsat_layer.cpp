// SPDX-License-Identifier: MIT
/// \file
/// Entries of the whole FSAT layer, projections and feature maps included. Only fovea_bench has
/// them: it does not read q, k and v of several heads.
#include "bench/entries/operators.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "bench/entries/fsat_entry.hpp"
#include "bench/io/gaussian.hpp"
#include "fovea/layers/fsat_layer.hpp"

namespace bench {

namespace {

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
Entry fsat_layer_entry(Names names, std::vector<Family> families) {
  const bool is_backward = names.pass == Pass::backward;
  Entry entry = entry_of(std::move(names), FsatSubject{}, std::move(families));
  entry.attended_pairs = [](const AttentionShape&) { return Index{0}; };
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

}  // namespace

std::vector<Entry> fsat_layer_entries() {
  const std::vector<Family> families = {{.lengths = {1024, 4096}},
                                        {.threads = 2, .lengths = {4096}}};
  return {fsat_layer_entry({"fsat_layer", "training:4"}, families),
          fsat_layer_entry({.op = "fsat_layer", .variant = "training:4", .pass = Pass::backward},
                           families)};
}

}  // namespace bench
