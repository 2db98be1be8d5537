// SPDX-License-Identifier: MIT
/// \file
/// usage: sketch_of_a_document [picture.png [text]]     - without a text, a rhyme
/// Smart Bird attention over the words of a document, as in Figures 1 and 2 of its paper (Wu et al.
/// 2021): a head of 4 dimensions is trained to match the maps of 4 heads of 64 dimensions, and
/// chooses 20 keys for each row. The picture shows the map of one of the heads, the map of the
/// sketch, and the chosen pairs with their weights.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fovea/fovea.hpp>
#include <fovea/io/mapped_file.hpp>
#include <iterator>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "palette_png.hpp"
#include "small_letters.hpp"

namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using fovea::Index;

constexpr Index kHeads = 4, kWidth = 64, kSketchWidth = 4, kKeysPerRow = 20;
constexpr Index kModelWidth = 128;  // of a word before it is projected to heads
constexpr Index kMostWords = 200;

/// "This is the house that Jack built": each verse contains the previous one.
std::vector<std::string> rhyme() {
  const std::array parts = {"the house that Jack built.",
                            "the malt that lay in",
                            "the rat that ate",
                            "the cat that killed",
                            "the dog that worried",
                            "the cow with the crumpled horn that tossed",
                            "the maiden all forlorn that milked",
                            "the man all tattered and torn that kissed"};
  std::string text;
  for (std::size_t verse = 0; verse < parts.size(); ++verse) {
    text += "This is ";
    for (std::size_t part = verse + 1; part-- > 0;) text += std::string(parts[part]) + " ";
  }
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

std::vector<std::string> read_words(const std::string& file) {
  std::istringstream words(std::string(fovea::MappedFile(file).text()));
  std::vector<std::string> all{std::istream_iterator<std::string>(words), {}};
  if (all.empty()) throw std::runtime_error(file + " has no words");
  if (all.size() > kMostWords) all.resize(kMostWords);
  return all;
}

/// Normal numbers: mean 0, variance `variance`.
Matrix random_matrix(Index rows, Index columns, unsigned seed, float variance) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal(0, std::sqrt(variance));
  Matrix x(rows, columns);
  for (Index n = 0; n < x.size(); ++n) x.data()[n] = normal(bits);
  return x;
}

/// [N, kModelWidth]: random vectors of the word and of the two before it, and its position.
Matrix embed(const std::vector<std::string>& words) {
  const auto n = static_cast<Index>(words.size());
  Matrix x = Matrix::Zero(n, kModelWidth);
  for (Index i = 0; i < n; ++i) {
    for (Index back = 0; back <= std::min<Index>(i, 2); ++back) {
      unsigned seed = static_cast<unsigned>(back);
      for (const char c : words[static_cast<std::size_t>(i - back)]) {
        seed = seed * 31 + static_cast<unsigned char>(c);
      }
      x.row(i) += random_matrix(1, kModelWidth, seed, back == 0 ? 1.0f : 0.5f);
    }
    for (Index c = 0; c < kModelWidth; c += 2) {
      const double wave = std::pow(1000.0, static_cast<double>(c) / kModelWidth);
      x(i, c) += 0.7f * static_cast<float>(std::sin(static_cast<double>(i) / wave));
      x(i, c + 1) += 0.7f * static_cast<float>(std::cos(static_cast<double>(i) / wave));
    }
  }
  return x;
}

/// The complete map of a head [N, N]: attention with unit vectors as values.
template <class Op>
Matrix map_of(const Op& op, typename Op::template Inputs<float> inputs, fovea::ThreadPool& pool) {
  const Index n = inputs.q.rows();
  const Matrix values = Matrix::Identity(n, n);
  Matrix map(n, n);
  inputs.v = fovea::View<const float>(values);
  op.forward(inputs, map, pool);
  return map;
}

/// A head of few dimensions, trained to have the map `target`: Adam minimises the divergence of the
/// two maps.
class SketchHead {
 public:
  Matrix q, k;  // [N, kSketchWidth]

  SketchHead(const Matrix& x, const Matrix& target, fovea::ThreadPool& pool) {
    const Index n = x.rows();
    const Matrix values = Matrix::Identity(n, n);
    Matrix map(n, n), d_map(n, n), d_q(n, kSketchWidth), d_k(n, kSketchWidth);
    std::vector<float> lse(static_cast<std::size_t>(n));
    const fovea::SoftmaxSaved<float> saved{fovea::View<float>(lse.data(), {1, 1, n, 1})};
    Weights to_q(1), to_k(2);
    for (int step = 1; step <= 400; ++step) {
      q = x * to_q.now;
      k = x * to_k.now;
      head_.forward({q, k, values}, map, saved, pool);
      d_map = -target.array() / map.array().max(1e-20f);  // of -sum target log(map)
      head_.backward({q, k, values}, map, saved, d_map, {.q = d_q, .k = d_k}, pool);
      to_q.descend(x.transpose() * d_q, step);
      to_k.descend(x.transpose() * d_k, step);
    }
  }

 private:
  struct Weights {
    explicit Weights(unsigned seed)
        : now(random_matrix(kModelWidth, kSketchWidth, seed, 1.0f / kModelWidth)) {}

    void descend(const Matrix& d, int step) {
      mean = 0.9f * mean + 0.1f * d;
      square = 0.99f * square + 0.01f * d.cwiseAbs2();
      const auto time = static_cast<float>(step);
      const Matrix unbiased = square / (1 - std::pow(0.99f, time));
      now.array() -=
          0.01f / (1 - std::pow(0.9f, time)) * mean.array() / (unbiased.array().sqrt() + 1e-8f);
    }

    Matrix now;
    Matrix mean = Matrix::Zero(kModelWidth, kSketchWidth);
    Matrix square = Matrix::Zero(kModelWidth, kSketchWidth);
  };

  fovea::FullAttention head_;
};

/// The share of full attention's weight on the keys of some lists, mean over rows and heads.
double mass(const fovea::IndexTensor& lists, const std::vector<Matrix>& maps) {
  double sum = 0;
  for (Index h = 0; h < kHeads; ++h) {
    const Matrix& map = maps[static_cast<std::size_t>(h)];
    for (Index i = 0; i < map.rows(); ++i) {
      for (Index n = 0; n < kKeysPerRow && lists(0, h, i, n) >= 0; ++n) {
        sum += static_cast<double>(map(i, lists(0, h, i, n)));
      }
    }
  }
  return sum / static_cast<double>(kHeads * lists.shape()[2]);
}

/// Colours of increasing weight, from black to yellow, and white outside of the maps.
constexpr drawing::Palette kColours = {0x000004, 0x0b0724, 0x210c4a, 0x3b0964, 0x550f6d, 0x6d186e,
                                       0x85216b, 0x9d2964, 0xb63655, 0xcb4149, 0xde5238, 0xee6a24,
                                       0xf98e09, 0xfac42a, 0xfcffa4, 0xffffff};
constexpr std::uint8_t kBlack = 0, kWhite = 15;
constexpr std::size_t kLeastSide = 390, kGap = 24;  // pixels of a map; between maps
constexpr std::size_t kLeft = 76, kTop = 30, kBottom = 92;

/// The weight that a hundredth of the pairs of a map exceeds.
float large_weight(Matrix map) {
  float* const end = map.data() + map.size();
  float* const rank = end - map.size() / 100 - 1;
  std::nth_element(map.data(), rank, end);
  return *rank;
}

/// Pixels of a pair, so that titles fit above a map of few words.
std::size_t pixels_of_pair(std::size_t words) { return (kLeastSide + words - 1) / words; }

/// The left edge of a map. \param side of a map, in pixels
std::size_t left_of(std::size_t place, std::size_t side) { return kLeft + place * (side + kGap); }

/// Adds a map to the right. Colours show the square root of a weight, up to that of `largest`; a
/// pair with any weight has at least the colour `least`.
void draw(drawing::Pixels& picture, std::size_t place, const Matrix& map, float largest,
          int least) {
  const std::size_t pixel = pixels_of_pair(static_cast<std::size_t>(map.rows()));
  const std::size_t side = static_cast<std::size_t>(map.rows()) * pixel;
  for (std::size_t row = 0; row < side; ++row) {
    for (std::size_t column = 0; column < side; ++column) {
      const float weight = map(static_cast<Index>(row / pixel), static_cast<Index>(column / pixel));
      const auto colour =
          static_cast<int>(std::lround(std::sqrt(std::min(1.0f, weight / largest)) * 14));
      picture.at(kTop + row, left_of(place, side) + column) =
          static_cast<std::uint8_t>(weight > 0 ? std::max(least, colour) : 0);
    }
  }
}

/// Text that is centred on that column.
void write_centred(drawing::Pixels& picture, std::size_t row, std::size_t middle,
                   const std::string& text) {
  drawing::write(picture, row, middle - text.size() * drawing::kLetterWidth / 2, text, kBlack);
}

/// The titles of the maps, ticks every 50 words, the names of the axes, and the legend.
void write_axes(drawing::Pixels& picture, const std::vector<std::string>& titles,
                std::size_t words) {
  const std::size_t pixel = pixels_of_pair(words);
  const std::size_t side = words * pixel;
  for (std::size_t place = 0; place < titles.size(); ++place) {
    const std::size_t left = left_of(place, side);
    write_centred(picture, 6, left + side / 2, titles[place]);
    for (std::size_t tick = 0; tick < words; tick += 50) {
      const std::size_t at = tick * pixel;
      const std::string number = std::to_string(tick);
      for (std::size_t dot = 0; dot < 5; ++dot) {
        picture.at(kTop + side + dot, left + at) = kBlack;
        picture.at(kTop + at, left - 1 - dot) = kBlack;
      }
      write_centred(picture, kTop + side + 9, left + at + 1, number);
      if (place > 0) continue;
      const std::size_t width = number.size() * drawing::kLetterWidth;
      drawing::write(picture, kTop + std::max<std::size_t>(at, 7) - 7, left - 8 - width, number,
                     kBlack);
    }
    write_centred(picture, kTop + side + 31, left + side / 2, "keys");
  }
  drawing::write(picture, kTop + side / 2 + 42, 6, "queries", kBlack, true);
  const std::size_t row = kTop + side + 64;
  drawing::write(picture, row, kLeft, "weight of a pair  none", kBlack);
  const std::size_t bar = kLeft + 23 * drawing::kLetterWidth;
  for (std::size_t x = 0; x < 15 * 12; ++x) {
    for (std::size_t y = 0; y < drawing::kLetterHeight; ++y) {
      picture.at(row + y, bar + x) = static_cast<std::uint8_t>(x / 12);
    }
  }
  drawing::write(picture, row, bar + 16 * 12, "that of the largest hundredth", kBlack);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string file = argc > 1 ? argv[1] : "sketch_of_a_document.png";
  const std::vector<std::string> words = argc > 2 ? read_words(argv[2]) : rhyme();
  const Matrix x = embed(words);
  fovea::ThreadPool pool;

  std::vector<Matrix> q, k, maps;
  Matrix mean = Matrix::Zero(x.rows(), x.rows());
  for (unsigned h = 0; h < kHeads; ++h) {
    // Similar words attend to each other: the matrices of queries and keys are similar.
    const Matrix both = random_matrix(kModelWidth, kWidth, 10 + h, 1.0f / kModelWidth);
    const Matrix own = random_matrix(kModelWidth, kWidth, 20 + h, 1.0f / kModelWidth);
    q.push_back(x * both * 0.7f);
    k.push_back(x * (0.8f * both + 0.6f * own));
    maps.push_back(map_of(fovea::FullAttention{}, {q[h], k[h]}, pool));
    mean += maps[h] / kHeads;
  }
  const SketchHead sketch(x, mean, pool);

  const fovea::SmartBirdAttention bird({.keys_per_row = kKeysPerRow});
  const fovea::SmartBirdAttention random(
      {.keys_per_row = kKeysPerRow, .policy = fovea::SamplingPolicy::random});
  const double found = mass(bird.select({sketch.q, sketch.k}, kHeads), maps);
  const double by_chance = mass(random.select({sketch.q, sketch.k}, kHeads), maps);

  const auto count = static_cast<std::size_t>(x.rows());
  const std::size_t side = count * pixels_of_pair(count);
  drawing::Pixels picture(left_of(3, side), kTop + side + kBottom, kWhite);
  const Matrix sketched = map_of(fovea::FullAttention{}, {sketch.q, sketch.k}, pool);
  draw(picture, 0, maps[0], large_weight(maps[0]), 0);
  draw(picture, 1, sketched, large_weight(sketched), 0);
  const Matrix chosen =
      map_of(bird, {.q = q[0], .k = k[0], .sketch_q = sketch.q, .sketch_k = sketch.k}, pool);
  draw(picture, 2, chosen, large_weight(maps[0]), 4);
  write_axes(picture,
             {"a head of " + std::to_string(kWidth) + " dimensions",
              "the sketch of " + std::to_string(kSketchWidth) + " dimensions",
              "the " + std::to_string(kKeysPerRow) + " keys that it chooses"},
             count);
  if (!drawing::write_png(file, picture, kColours)) {
    throw std::runtime_error("cannot write " + file);
  }
  std::printf("%s: %td words. %td keys of each row have %.2f of the weight; random keys %.2f\n",
              file.c_str(), x.rows(), kKeysPerRow, found, by_chance);
  std::printf("the sketch finds more than twice as much as random keys: %s\n",
              found > 2 * by_chance ? "yes" : "no");
  return found > 2 * by_chance ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "sketch_of_a_document: %s\n", error.what());
  return 1;
}
