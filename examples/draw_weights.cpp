// SPDX-License-Identifier: MIT
/// \file
/// usage: draw_weights [file.svg]     weights.svg if none is given
/// Draws the N x N weights of operators whose keys are not pairs of a pattern. Out is linear in the
/// values, so unit vectors as values give the weights. It prints a line and draws a map for each
/// operator, full attention of the same tokens first.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fovea/fovea.hpp>
#include <fovea/spectral.hpp>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "pattern_sheet.hpp"

namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using fovea::Index;
using fovea::View;

constexpr Index kTokens = 64, kWidth = 16, kKinds = 4;
constexpr Index kFew = 8;  // projected keys, landmarks, packed rows, rows of a block and of a chunk

Index kind_of(Index token) { return (token * token * 5 + token / 3) % kKinds; }

/// [kTokens, kWidth]: tokens of some kinds in random order. Tokens of one kind are similar, and so
/// are neighbours.
Matrix tokens() {
  Matrix x = Matrix::Zero(kTokens, kWidth);
  for (Index n = 0; n < kTokens; ++n) {
    x(n, kind_of(n)) = 3;
    for (Index c = kKinds; c < kWidth; c += 2) {
      const double angle = 6.2831853 * static_cast<double>(n * (c - kKinds + 2)) / (2 * kTokens);
      x(n, c) = 1.1F * static_cast<float>(std::cos(angle));
      x(n, c + 1) = 1.1F * static_cast<float>(std::sin(angle));
    }
  }
  return x;
}

Matrix gaussians(Index rows, Index columns, unsigned seed, float deviation) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal(0, deviation);
  Matrix x(rows, columns);
  for (Index n = 0; n < x.size(); ++n) x.data()[n] = normal(bits);
  return x;
}

/// [kFew, kTokens]: each row is the mean of neighbours.
Matrix means() {
  Matrix e = Matrix::Zero(kFew, kTokens);
  for (Index n = 0; n < kTokens; ++n) e(n * kFew / kTokens, n) = float{kFew} / float{kTokens};
  return e;
}

/// The result of an operator for unit vectors.
struct Map {
  std::string name;
  std::string options;
  Matrix weights;
  bool sums_to_one = true;  ///< of every row
};

/// The maps of operators whose weights depend on the tokens.
std::vector<Map> maps_of_tokens() {
  const Matrix x = tokens(), values = Matrix::Identity(kTokens, kTokens), e = means();
  std::vector<Map> maps;
  // call(out) writes the map.
  const auto add = [&](const char* name, const char* options, bool sums, const auto& call) {
    maps.push_back({name, options, Matrix(kTokens, kTokens), sums});
    call(maps.back().weights);
  };
  add(fovea::FullAttention::name(), "for comparison", true, [&](Matrix& out) {
    fovea::FullAttention{}.forward({x, x, values}, out);
  });
  add(fovea::LinformerAttention::name(), "keys and values are 8 means of neighbours", true,
      [&](Matrix& out) {
        fovea::LinformerInputs<float> in{x, x, values};
        in.key_projection = e;
        in.value_projection = e;
        fovea::LinformerAttention{}.forward(in, out);
      });
  add(fovea::NystroemAttention::name(), "8 landmarks", false, [&](Matrix& out) {
    fovea::NystroemAttention{{.landmarks = kFew}}.forward({x, x, values}, out);
  });
  add(fovea::PerformerAttention::name(), "64 random features", true, [&](Matrix& out) {
    Matrix projection(64, kWidth);
    fovea::draw_projection(1, View<float>(projection));
    fovea::PerformerInputs<float> in{x, x, values};
    in.projection = projection;
    fovea::PerformerAttention{}.forward(in, out);
  });
  add(fovea::LunaAttention::name(), "8 packed rows, whose queries are 3 means of neighbours", true,
      [&](Matrix& out) {
        const fovea::LunaAttention op;
        const Matrix queries = 3 * e * x;
        Matrix keys(kFew, kWidth), packed(kFew, kTokens);  // of the packed rows
        op.pack().forward({queries, x, x}, keys);
        op.pack().forward({queries, x, values}, packed);
        op.unpack().forward({x, keys, packed}, out);
      });
  add(fovea::SinkhornAttention::name(), "blocks of 8, random sorting logits", false,
      [&](Matrix& out) {
        const Matrix sorting = gaussians(kTokens / kFew, kTokens / kFew, 2, 8);
        fovea::SinkhornInputs<float> in{x, x, values};
        in.sorting = sorting;
        fovea::SinkhornAttention{{.block = kFew}}.forward(in, out);
      });
  add(fovea::ReformerAttention::name(), "chunks of 8, 2 rounds of 8 buckets", true,
      [&](Matrix& out) {
        // Keys have the length 1, so the scale has that of the others.
        const double scale = x.row(0).norm() / std::sqrt(double{kWidth});
        const fovea::ReformerAttention op{
            {.chunk = kFew, .rounds = 2, .buckets = 8, .scale = scale, .seed = 3}};
        op.forward({x, values}, out);
      });
  return maps;
}

/// The maps of operators whose weights depend on positions, or on each token alone.
std::vector<Map> maps_of_positions() {
  const Matrix x = tokens(), values = Matrix::Identity(kTokens, kTokens);
  std::vector<Map> maps;
  const auto add = [&](const char* name, const char* options, bool sums, const auto& call) {
    maps.push_back({name, options, Matrix(kTokens, kTokens), sums});
    call(maps.back().weights);
  };
  add(fovea::RandomSynthesizerAttention::name(), "random logits", true, [&](Matrix& out) {
    const Matrix r = gaussians(kTokens, kTokens, 4, 1.5);
    fovea::RandomSynthesizerAttention{}.forward({r, values}, out);
  });
  add(fovea::FactorisedSynthesizerAttention::name(), "random factors of 2 columns", true,
      [&](Matrix& out) {
        const Matrix r1 = gaussians(kTokens, 2, 5, 1.5), r2 = gaussians(kTokens, 2, 6, 1.5);
        fovea::FactorisedSynthesizerAttention{}.forward({r1, r2, values}, out);
      });
  add(fovea::DenseSynthesizerAttention::name(), "a random hidden layer of 16", true,
      [&](Matrix& out) {
        const Matrix w1 = gaussians(kWidth, 16, 7, 0.25F), w2 = gaussians(16, kTokens, 8, 0.5F);
        fovea::DenseSynthesizerInputs<float> in;
        in.x = x;
        in.w1 = w1;
        in.w2 = w2;
        in.v = values;
        fovea::DenseSynthesizerAttention{}.forward(in, out);
      });
  add(fovea::FourierMixer::name(), "of one channel", false, [&](Matrix& out) {
    // The batch has a sequence for each unit vector, and one for its result.
    const View<const float> units(values.data(), {kTokens, 1, kTokens, 1});
    fovea::FourierMixer{}.forward(units, View<float>(out.data(), units.shape()));
    out.transposeInPlace();
  });
  return maps;
}

/// The share of the pairs with a true `mask` in the sum of the magnitudes of all weights.
double share(const Matrix& weights, const drawing::Mask& mask) {
  double part = 0;
  for (Index i = 0; i < kTokens; ++i) {
    for (Index j = 0; j < kTokens; ++j) part += mask(i, j) ? std::abs(weights(i, j)) : 0.0F;
  }
  return part / static_cast<double>(weights.cwiseAbs().sum());
}

/// Weights that are at least 1/16, 1/8, 1/4 and 1/2 of the largest one in darker blues, negative
/// ones in darker oranges.
drawing::Picture picture_of(const Map& map) {
  const auto level = [w = map.weights](Index i, Index j) {
    const float relative = std::abs(w(i, j)) / w.cwiseAbs().maxCoeff();
    const int of_size = relative < 1 / 16.0F ? 0 : std::min(4, 5 + std::ilogb(relative));
    return w(i, j) < 0 ? -of_size : of_size;
  };
  drawing::Picture picture{
      map.name, map.options, [level](Index i, Index j) { return level(i, j) != 0; }, kFew, {}};
  const std::vector<std::pair<int, const char*>> colours = {
      {1, "#C6DBEF"},  {2, "#85BCDB"},  {3, "#3787C0"},  {4, "#08478D"},
      {-1, "#FDD8B3"}, {-2, "#FDA762"}, {-3, "#E95E0D"}, {-4, "#A33803"}};
  for (const auto& [number, colour] : colours) {
    picture.parts.push_back(
        {"", colour, [level, own = number](Index i, Index j) { return level(i, j) == own; }});
  }
  return picture;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string file = argc > 1 ? argv[1] : "weights.svg";
  std::vector<Map> maps = maps_of_tokens();
  for (const Map& map : maps_of_positions()) maps.push_back(map);

  std::printf("%-31s%14s%14s%14s\n", "share of the weights, of", "neighbours", "the kind",
              "from full");
  std::vector<drawing::Picture> pictures;
  bool sums_are_right = true;
  for (const Map& map : maps) {
    const auto nearby = [](Index i, Index j) { return std::abs(i - j) <= 4; };
    const auto alike = [](Index i, Index j) { return kind_of(i) == kind_of(j); };
    const Matrix& full = maps.front().weights;
    std::printf("%-31s%12.0f %%%12.0f %%%14.2f\n", map.name.c_str(),
                100 * share(map.weights, nearby), 100 * share(map.weights, alike),
                static_cast<double>((map.weights - full).norm() / full.norm()));
    const auto sums = map.weights.rowwise().sum().array();
    sums_are_right &= !map.sums_to_one || (sums - 1).abs().maxCoeff() < 1e-5F;
    pictures.push_back(picture_of(map));
  }
  const std::string heading =
      "Weights, N = 64. Rows: queries; columns: values. Dark: large; orange: negative. Below: "
      "share "
      "of 1/16 of the largest or more";
  if (!drawing::write(file, drawing::sheet(heading, pictures, kTokens, 4))) {
    std::fprintf(stderr, "draw_weights: cannot write %s\n", file.c_str());
    return 1;
  }
  std::printf("%s: %zu maps; rows sum to 1 where required: %s\n", file.c_str(), pictures.size(),
              sums_are_right ? "yes" : "no");
  return sums_are_right ? 0 : 1;
}
