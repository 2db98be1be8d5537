// SPDX-License-Identifier: MIT
/// \file
/// The tensors of the calls that fovea_scale measures, of a whole sequence or of a rank's rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "bench/io/gaussian.hpp"
#include "bench/scale/sent.hpp"
#include "fovea/core/view.hpp"

namespace bench {

using fovea::Shape;
using fovea::View;

inline constexpr Index kWidth = 64;         ///< D of queries, keys and values
inline constexpr Index kSketchColumns = 8;  ///< d of a sketch
inline constexpr Index kChosen = 20;        ///< keys of a row and head, of lists
inline constexpr Index kDominant = 4;       ///< M, the dominant indices of a key of FSAT
inline constexpr Index kFeatures = 64;      ///< of a row, random ones, too
inline constexpr Index kPacked = 64;        ///< P of Luna
inline constexpr Index kProjected = 128;    ///< P of Linformer
inline constexpr Index kLandmarks = 64;
inline constexpr Index kChunk = 64;  ///< of Reformer, and the block of Sinkhorn
inline constexpr Index kRounds = 4;
inline constexpr Index kRank = 8;     ///< r of the factorised Synthesizer
inline constexpr Index kHidden = 64;  ///< of the dense one

/// All tensors of some rows. Each is allocated when it is first requested, so unused ones need no
/// memory, and q, k and v are separate, as in programs.
class Tensors {
 public:
  /// \param heads of q, k and v   \param layout, rank whose rows these are
  Tensors(Index heads, const RowLayout& layout, int rank, std::uint32_t seed)
      : heads_(heads), layout_(layout), rows_(layout.count(rank)), seed_(seed) {
    const Shape projections = {1, 1, kProjected, rows_};
    const Shape projected = {1, heads, kProjected, kWidth};
    const Index blocks = segments_of(whole_segments(layout, kChunk), rank, kChunk);
    for (const char* name : {"q", "k", "v", "qk", "x", "out", "near_out"}) {
      shapes_[name] = of_rows();
    }
    for (const char* name : {"lse", "near_lse", "beta"}) shapes_[name] = of_rows(1);
    shapes_.insert({{"round_lse", of_rows(kRounds)},
                    {"indices", of_rows(kChosen)},
                    {"dominant", of_rows(kDominant)},
                    {"sketch_q", {1, 1, rows_, kSketchColumns}},
                    {"sketch_k", {1, 1, rows_, kSketchColumns}},
                    {"projection", {1, 1, kFeatures, kWidth}},
                    {"key_projection", projections},
                    {"value_projection", projections},
                    {"projected_keys", projected},
                    {"projected_values", projected},
                    {"landmark_lse", {1, heads, kLandmarks, 1}},
                    {"landmark_values", {1, heads, kLandmarks, kWidth}},
                    {"sorting", {1, heads, blocks, sequence() / kChunk}},
                    {"r", of_rows(sequence())},
                    {"r1", of_rows(kRank)},
                    {"r2", of_rows(kRank)},
                    {"w1", {1, heads, kWidth, kHidden}},
                    {"w2", {1, heads, kHidden, sequence()}}});
  }
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;

  Index heads() const { return heads_; }
  Index rows() const { return rows_; }
  Index sequence() const { return layout_.rows(); }
  /// [1, heads, rows, width].
  Shape of_rows(Index width = kWidth) const { return {1, heads_, rows_, width}; }

  /// Whether some operator has a tensor of that name.
  bool has(const std::string& name) const { return shapes_.contains(name); }
  /// The shape of a tensor by the name that operators have for it. "d_" before a name is its
  /// gradient, and "packed " before that is the same of packed rows, which all ranks have.
  Shape shape(std::string name) const {
    const auto takes = [&](std::string_view prefix) {
      const bool has_it = name.starts_with(prefix);
      if (has_it) name.erase(0, prefix.size());
      return has_it;
    };
    const bool is_packed = takes("packed ");
    takes("d_");
    Shape found = shapes_.at(name);
    if (is_packed) found[2] = kPacked;
    return found;
  }
  /// What is read by that name.
  View<const float> read(const std::string& name) {
    const Shape of = shape(name);
    const bool is_sketch = name.starts_with("sketch");  // the first columns of q
    if (is_sketch) return View<const float>(read("q").data(), of, read("q").strides());
    if (name == "beta") return even(name, 1, 0.5F);
    if (name == "dominant") return places(name, kDominant);
    const bool is_alike =
        name.starts_with("packed ") || name == "projection" || name == "w1" || name == "w2";
    return is_alike ? alike(name, of) : given(name, of);
  }
  /// What is written by that name.
  View<float> written(const std::string& name) { return made(name, shape(name)); }

  /// A tensor of random numbers, others on each rank.
  View<const float> given(const std::string& name, const Shape& shape) {
    return random(name, shape, seed_);
  }
  /// The same, alike on all ranks.
  View<const float> alike(const std::string& name, const Shape& shape) {
    constexpr std::uint32_t seed = 4711;
    return random(name, shape, seed);
  }
  /// A tensor that is written.
  View<float> made(const std::string& name, const Shape& shape) {
    return View<float>(memory_of(numbers_, name, shape).data(), shape);
  }
  View<Index> made_indices(const std::string& name, const Shape& shape) {
    return View<Index>(memory_of(indices_, name, shape).data(), shape);
  }

  /// Numbers that are spread evenly from 0 to the largest one.
  View<const float> even(const std::string& name, Index width, float largest) {
    std::vector<float>& all = numbers_[name];
    if (all.empty()) {
      all = gaussians(number_of(name), seed_, heads_ * rows_ * width);
      // The normal distribution function, nearly.
      for (float& d : all) d = largest / (1 + std::exp(-1.702F * d));
    }
    return View<const float>(all.data(), of_rows(width));
  }
  /// Places anywhere in the sequence, as real numbers.
  View<const float> places(const std::string& name, Index width) {
    return even(name, width, static_cast<float>(sequence() - 1));
  }
  /// Different keys of each row, anywhere in the sequence, ascending.
  View<const Index> lists(Index width) {
    const bool is_new = indices_["lists"].empty();
    const View<Index> lists = made_indices("lists", of_rows(width));
    if (is_new) {
      const View<const float> from = places("places of lists", width);
      for (Index h = 0; h < heads_; ++h) {
        for (Index n = 0; n < rows_; ++n) fill_list(&from(0, h, n, 0), &lists(0, h, n, 0), width);
      }
    }
    return lists;
  }

  /// An object that a call keeps from one time to the next. \param make makes a shared_ptr of it
  template <class Make>
  auto& kept(const std::string& name, const Make& make) {
    using X = typename decltype(make())::element_type;
    std::shared_ptr<void>& object = kept_[name];
    if (!object) object = make();
    return *static_cast<X*>(object.get());
  }

 private:
  static std::uint32_t number_of(const std::string& name) {
    return std::accumulate(name.begin(), name.end(), std::uint32_t{1}, [](std::uint32_t n, char c) {
      return 31 * n + static_cast<unsigned>(c);
    });
  }
  static Index size_of(const Shape& shape) { return shape[0] * shape[1] * shape[2] * shape[3]; }

  template <class T>
  static std::vector<T>& memory_of(std::map<std::string, std::vector<T>>& all,
                                   const std::string& name, const Shape& shape) {
    std::vector<T>& numbers = all[name];
    if (numbers.empty()) numbers.resize(static_cast<std::size_t>(size_of(shape)));
    return numbers;
  }
  View<const float> random(const std::string& name, const Shape& shape, std::uint32_t seed) {
    std::vector<float>& numbers = numbers_[name];
    if (numbers.empty()) numbers = gaussians(number_of(name), seed, size_of(shape));
    return View<const float>(numbers.data(), shape);
  }
  /// A list ends before the first -1.
  static void fill_list(const float* from, Index* to, Index width) {
    for (Index c = 0; c < width; ++c) to[c] = static_cast<Index>(from[c]);
    std::sort(to, to + width);
    std::fill(std::unique(to, to + width), to + width, -1);
  }

  Index heads_;
  RowLayout layout_;
  Index rows_;
  std::uint32_t seed_;
  std::map<std::string, Shape> shapes_;
  std::map<std::string, std::vector<float>> numbers_;
  std::map<std::string, std::vector<Index>> indices_;
  std::map<std::string, std::shared_ptr<void>> kept_;
};

}  // namespace bench
