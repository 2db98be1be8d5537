// SPDX-License-Identifier: MIT
/// \file
/// Predicts the next byte of a stream of any length in constant memory, by FMM attention with fast
/// weights: the delta rule (far field) writes what followed a context, and the band (near field)
/// finds the context among the last bytes. Nothing else is learned. Prints the fraction of correct
/// predictions, the time, and the memory while it runs.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fovea/fovea.hpp>
#include <fovea/io/mapped_file.hpp>
#include <iostream>
#include <limits>
#include <random>
#include <string>

#include "command_line.hpp"

namespace {

using Tensor = fovea::Tensor4<float>;  // [1, heads, N, D]
using fovea::Index;

constexpr Index kHeads = 4;        // head h knows the last h + 1 bytes
constexpr Index kWidth = 128;      // features of a context
constexpr Index kValueWidth = 64;  // of a byte
constexpr int kActive = 4;         // features that a context has

/// An endless text: integers and their squares.
class EndlessText {
 public:
  int next() {
    if (at_ == text_.size()) {
      const std::string n = std::to_string(number_);
      text_ = "the square of " + n + " is " + std::to_string(number_ * number_) + ".\n";
      number_ = (number_ + 1) % 10'000;
      at_ = 0;
    }
    return static_cast<unsigned char>(text_[at_++]);
  }

 private:
  std::uint64_t number_ = 1;
  std::string text_;
  std::size_t at_ = 0;
};

/// The next byte of a file, of standard input, or of the endless text; negative at the end.
class Source {
 public:
  explicit Source(const std::string& file) : is_endless_(file.empty()), is_input_(file == "-") {
    if (!is_endless_ && !is_input_) file_ = fovea::MappedFile(file);
  }

  int next() {
    if (is_endless_) return endless_.next();
    if (is_input_) return std::cin.get();
    return at_ < file_.text().size() ? static_cast<unsigned char>(file_.text()[at_++]) : -1;
  }

 private:
  bool is_endless_, is_input_;
  EndlessText endless_;
  fovea::MappedFile file_;
  std::size_t at_ = 0;
};

/// Predicts bytes from the preceding bytes.
class Guesser {
 public:
  Guesser()
      : decoder_(make_op().decoder<float>({.query_heads = kHeads,
                                           .key_heads = kHeads,
                                           .width = kWidth,
                                           .value_width = kValueWidth})),
        q_(1, kHeads, 1, kWidth),
        k_(1, kHeads, 1, kWidth),
        v_(1, kHeads, 1, kValueWidth),
        beta_(1, kHeads, 1, 1),
        out_(1, kHeads, 1, kValueWidth) {
    std::mt19937 bits(1);
    for (auto& byte : signs_) {
      for (float& x : byte) x = bits() % 2 == 0 ? 1.0f : -1.0f;
    }
    beta_.setConstant(1);
    q_.setConstant(0);
  }

  /// Learns which byte followed the last context, and predicts the byte that follows this one.
  int step(int byte) {
    k_ = q_;
    history_ = history_ << 8 | static_cast<unsigned>(byte);
    q_.setConstant(0);
    for (Index h = 0; h < kHeads; ++h) {
      const std::uint32_t context = h == 3 ? history_ : history_ & ((1u << (8 * (h + 1))) - 1);
      std::minstd_rand features(context * 2654435761u + 1);
      for (int n = 0; n < kActive; ++n)
        q_(0, h, 0, static_cast<Index>(features() >> 5) % kWidth) = 6;
      for (Index c = 0; c < kValueWidth; ++c) v_(0, h, 0, c) = signs_[byte][c];
    }
    decoder_.step({.q = q_, .k = k_, .v = v_, .beta = beta_}, out_);
    return best();
  }

  Index bytes() const { return decoder_.length(); }
  Index memory_bytes() const { return decoder_.memory_bytes(); }

 private:
  static fovea::FmmAttention<fovea::DeltaRule<fovea::Relu>> make_op() {
    return fovea::FmmAttention<fovea::DeltaRule<fovea::Relu>>{{.band = {.left = 31}}};
  }

  /// The byte whose signs agree best with the heads; heads with longer contexts have more weight.
  int best() const {
    float blend[kValueWidth] = {};
    for (Index h = 0; h < kHeads; ++h) {
      for (Index c = 0; c < kValueWidth; ++c) {
        blend[c] += static_cast<float>(h + 1) * out_(0, h, 0, c);
      }
    }
    float most = 0;
    int byte = 0;
    for (int b = 0; b < 256; ++b) {
      float agreement = 0;
      for (Index c = 0; c < kValueWidth; ++c) agreement += blend[c] * signs_[b][c];
      if (b == 0 || agreement > most) {
        most = agreement;
        byte = b;
      }
    }
    return byte;
  }

  fovea::LinearDecoder<fovea::FmmAttention<fovea::DeltaRule<fovea::Relu>>, float> decoder_;
  Tensor q_, k_, v_, beta_, out_;
  float signs_[256][kValueWidth];
  std::uint32_t history_ = 0;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Returns whether the memory stayed the same.
bool guess_bytes(const std::string& file, Index most) {
  Source source(file);
  Guesser guesser;
  std::printf("%12s %14s %14s %14s\n", "bytes", "guessed right", "us per byte", "decoder");
  const double begin = seconds_now();
  Index right = 0, asked = 0, next_report = 256, memory = 0;
  int guess = -1;
  bool is_constant = true;
  for (int byte = source.next(); byte >= 0 && guesser.bytes() != most; byte = source.next()) {
    right += byte == guess ? 1 : 0;
    ++asked;
    guess = guesser.step(byte);
    if (guesser.bytes() < next_report) continue;
    std::printf("%12td %12.1f %% %14.2f %11td kB\n", guesser.bytes(),
                100 * static_cast<double>(right) / static_cast<double>(asked),
                1e6 * (seconds_now() - begin) / static_cast<double>(guesser.bytes()),
                guesser.memory_bytes() / 1024);
    std::fflush(stdout);
    // Once the ring of the near field is full, nothing grows.
    if (next_report >= 8192) is_constant = is_constant && guesser.memory_bytes() == memory;
    memory = guesser.memory_bytes();
    right = asked = 0;
    next_report *= 2;
  }
  std::printf("memory is constant: %s\n", is_constant ? "yes" : "no");
  return is_constant;
}

}  // namespace

int main(int argc, char** argv) {
  return program::exit_status("byte_stream", [&] {
    Index most = std::numeric_limits<Index>::max();
    std::string file;
    program::CommandLine line("byte_stream",
                              "predicts the next byte of a stream in constant memory.");
    line.add("--bytes N", most, 1, most - 1, "stop after N bytes (never)");
    line.add("file", file, "the file to read; - is the standard input (an endless text)");
    if (!line.parse(argc, argv)) return 0;
    return guess_bytes(file, most) ? 0 : 1;
  });
}
