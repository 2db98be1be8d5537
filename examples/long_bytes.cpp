// SPDX-License-Identifier: MIT
/// \file
/// Sparse attention over the bytes of a document: the number of pairs of each pattern, its time,
/// and the distance of its result from full attention. Nothing is trained: bytes are embedded by
/// fixed random tables.
#include <chrono>
#include <cmath>
#include <fovea/fovea.hpp>
#include <fovea/io/mapped_file.hpp>
#include <iostream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>

#include "command_line.hpp"

namespace {

using Tensor = fovea::Tensor4<float>;  // [1, heads, N, D]
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using fovea::HeadAssignment;
using fovea::Index;

constexpr Index kHeads = 4, kWidth = 64;
constexpr Index kModelWidth = 128;  // of a byte before it is projected to heads
constexpr Index kDecoded = 32;      // the last bytes, which come one by one

/// "1 + 1 = 2; 1 + 2 = 3; ...", a line for each first number.
std::string sums(std::size_t bytes) {
  std::string text;
  for (int a = 1; text.size() < bytes; ++a) {
    for (int b = 1; b <= 30; ++b) {
      text += std::to_string(a) + " + " + std::to_string(b) + " = " + std::to_string(a + b);
      text += b < 30 ? "; " : "\n";
    }
  }
  text.resize(bytes);
  return text;
}

std::string read(const std::string& file, std::size_t most_bytes) {
  if (file != "-") return std::string(fovea::MappedFile(file).text().substr(0, most_bytes));
  std::string text(most_bytes, '\0');
  std::cin.read(text.data(), static_cast<std::streamsize>(most_bytes));
  text.resize(static_cast<std::size_t>(std::cin.gcount()));
  return text;
}

/// Normal numbers: mean 0, variance `variance`.
Matrix random_matrix(Index rows, Index columns, unsigned seed, float variance) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal(0, std::sqrt(variance));
  Matrix x(rows, columns);
  for (Index n = 0; n < x.size(); ++n) x.data()[n] = normal(bits);
  return x;
}

/// [N, kModelWidth]: a random vector for each byte, and sines and cosines of its position.
Matrix embed(const std::string& text) {
  const Matrix table = random_matrix(256, kModelWidth, 1, 0.5f);
  Matrix x(static_cast<Index>(text.size()), kModelWidth);
  for (Index i = 0; i < x.rows(); ++i) {
    x.row(i) = table.row(static_cast<unsigned char>(text[static_cast<std::size_t>(i)]));
    for (Index c = 0; c < kModelWidth; c += 2) {
      const double wave = std::pow(10000.0, static_cast<double>(c) / kModelWidth);
      x(i, c) += static_cast<float>(std::sin(static_cast<double>(i) / wave));
      x(i, c + 1) += static_cast<float>(std::cos(static_cast<double>(i) / wave));
    }
  }
  return x;
}

/// Projects to heads, each by a different random matrix.
Tensor project(const Matrix& x, unsigned seed) {
  Tensor heads(1, kHeads, x.rows(), kWidth);
  for (Index h = 0; h < kHeads; ++h) {
    const unsigned own = seed + static_cast<unsigned>(h);
    Eigen::Map<Matrix>(heads.data() + h * x.rows() * kWidth, x.rows(), kWidth) =
        x * random_matrix(kModelWidth, kWidth, own, 1.0f / kModelWidth);
  }
  return heads;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Root of the mean square of x - reference, relative to that of the reference.
double distance(const Tensor& x, const Tensor& reference) {
  double difference = 0, whole = 0;
  for (Index n = 0; n < x.size(); ++n) {
    const double r = reference.data()[n], d = x.data()[n] - r;
    difference += d * d;
    whole += r * r;
  }
  return std::sqrt(difference / whole);
}

/// One document, and full attention to compare with.
class Document {
 public:
  explicit Document(const std::string& text) {
    const Matrix x = embed(text);
    q_ = project(x, 10);
    k_ = project(x, 10);  // the matrices of q: like attends to like
    v_ = project(x, 20);
  }

  Index length() const { return q_.dimension(2); }

  /// Prints a row of the table. The first operator is the one that others are compared with.
  /// Returns whether bytes decoded one by one have the bits of a single call.
  template <class Op>
  bool show(const char* label, const Op& op) {
    Tensor out(1, kHeads, length(), kWidth);
    op.forward({q_, k_, v_}, out, pool_);  // memory is touched, threads are awake
    double seconds = 1e30;
    for (int run = 0; run < 3; ++run) {
      const double begin = seconds_now();
      op.forward({q_, k_, v_}, out, pool_);
      seconds = std::min(seconds, seconds_now() - begin);
    }
    double pairs = 0;
    for (Index h = 0; h < kHeads; ++h) {
      pairs += static_cast<double>(
          op.attended_pairs({.query_heads = kHeads, .queries = length(), .keys = length()}, h));
    }
    if (full_.size() == 0) {
      full_ = out;
      full_seconds_ = seconds;
      full_pairs_ = pairs;
    }
    std::printf("%-28s %8.2f %% %9.1f ms %7.1f x %9.3f", label, 100 * pairs / full_pairs_,
                1e3 * seconds, full_seconds_ / seconds, distance(out, full_));
    return show_decoding(op, out);
  }

 private:
  static Tensor rows(const Tensor& x, Index first, Index count) {
    return x.slice(Eigen::array<Index, 4>{0, 0, first, 0},
                   Eigen::array<Index, 4>{1, kHeads, count, kWidth});
  }

  /// Appends all bytes except the last ones, then decodes these one by one.
  template <class Op>
  bool show_decoding(const Op& op, const Tensor& expected) {
    auto decoder = op.template decoder<float>({.query_heads = kHeads,
                                               .key_heads = kHeads,
                                               .width = kWidth,
                                               .value_width = kWidth,
                                               .reserve = length()});
    const Index before = length() - kDecoded;
    const Tensor k = rows(k_, 0, before), v = rows(v_, 0, before);
    decoder.append(k, v);
    Tensor row(1, kHeads, 1, kWidth);
    bool same = true;
    double seconds = 0;
    for (Index i = before; i < length(); ++i) {
      const Tensor qi = rows(q_, i, 1), ki = rows(k_, i, 1), vi = rows(v_, i, 1);
      const double begin = seconds_now();
      decoder.step({qi, ki, vi}, row, pool_);
      seconds += seconds_now() - begin;
      const Tensor expected_row = rows(expected, i, 1);
      same = same &&
             std::memcmp(row.data(), expected_row.data(), sizeof(float) * kHeads * kWidth) == 0;
    }
    std::printf(" %9.1f us\n", 1e6 * seconds / kDecoded);
    return same;
  }

  fovea::ThreadPool pool_;
  Tensor q_, k_, v_;
  Tensor full_;
  double full_seconds_ = 0, full_pairs_ = 0;
};

bool show_all(Document& document) {
  // Strided attention has the fewest pairs for a stride near the square root of the length.
  const auto l = static_cast<Index>(std::lround(std::sqrt(static_cast<double>(document.length()))));
  const Index c = std::max<Index>(1, l / 16);
  constexpr HeadAssignment merged = HeadAssignment::merged;
  std::printf("l = %td, c = %td\n\n%-28s %10s %12s %9s %9s %12s\n", l, c, "causal attention",
              "pairs", "time", "faster", "distance", "next byte");
  bool same = document.show("full", fovea::FullAttention{{.causal = true}});
  same &= document.show("strided, heads take turns", fovea::StridedAttention{{.stride = l}});
  same &= document.show("strided, merged", fovea::StridedAttention{{.stride = l, .heads = merged}});
  same &=
      document.show("fixed, heads take turns", fovea::FixedAttention{{.stride = l, .summary = c}});
  same &= document.show("fixed, merged",
                        fovea::FixedAttention{{.stride = l, .summary = c, .heads = merged}});
  same &= document.show("Longformer",
                        fovea::LongformerAttention{
                            {.left = 2 * l, .right = 0, .first_global = l / 2, .causal = true}});
  same &= document.show("BigBird", fovea::BigBirdAttention{{.block = l / 2, .causal = true}});
  return same;
}

/// Returns whether decoders give the bits of one call.
bool show(const std::string& file, std::size_t bytes) {
  const std::string text = file.empty() ? sums(bytes) : read(file, bytes);
  if (text.size() <= kDecoded) throw std::runtime_error("too few bytes");
  Document document(text);
  std::printf("%td bytes, %td heads of width %td, %d threads, level %s, ", document.length(),
              kHeads, kWidth, fovea::default_concurrency(), fovea::name(fovea::isa_level()));
  const bool same = show_all(document);
  std::printf(
      "\npairs      visible, relative to full causal attention\ntime       of one forward pass, "
      "the fastest of 3\ndistance   of the output from that of full attention, relative (root mean "
      "square). Nothing\n           is trained here: a trained model adapts to its pattern\nnext "
      "byte  through the decoder, after all bytes before it: the mean of the last %td\n\nThe "
      "decoder has the same bits as one call: %s\n",
      kDecoded, same ? "yes" : "no");
  return same;
}

}  // namespace

int main(int argc, char** argv) {
  return program::exit_status("long_bytes", [&] {
    std::size_t bytes = 16384;
    std::string file;
    program::CommandLine line("long_bytes", "sparse attention over the bytes of a document.");
    line.add("--bytes N", bytes, 1, std::size_t{1} << 40, "read at most the first N bytes");
    line.add("file", file, "the document; - is the standard input (a text of sums)");
    if (!line.parse(argc, argv)) return 0;
    return show(file, bytes) ? 0 : 1;
  });
}
