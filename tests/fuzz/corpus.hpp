// SPDX-License-Identifier: MIT
/// \file
/// The corpora of fuzzers: byte strings that each reached code that the others did not.
/// keep_corpus.py writes them; the suite calls each again.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace fovea_test {

/// The rows that the fuzzer of this name keeps. In its file each has its length before it, in two
/// bytes of which the low one comes first.
/// \throws std::runtime_error if the file is missing or ends within a row
inline std::vector<std::vector<std::uint8_t>> corpus_of(const std::string& name) {
  const std::string path = FOVEA_SOURCE_DIR "/tests/fuzz/corpora/" + name + ".bin";
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  const std::vector<char> all{std::istreambuf_iterator<char>(file),
                              std::istreambuf_iterator<char>()};
  const auto byte = [&](std::size_t at) { return static_cast<std::uint8_t>(all[at]); };
  std::vector<std::vector<std::uint8_t>> rows;
  for (std::size_t at = 0; at < all.size();) {
    if (all.size() - at < 2) throw std::runtime_error(path + ": ends within a length");
    const std::size_t size = byte(at) + std::size_t{256} * byte(at + 1);
    at += 2;
    if (all.size() - at < size) throw std::runtime_error(path + ": ends within a row");
    std::vector<std::uint8_t>& row = rows.emplace_back(size);
    for (std::uint8_t& to : row) to = byte(at++);
  }
  return rows;
}

/// Calls trial(bytes) for each of them. \param least how many there must be
template <class Trial>
void each_kept(const std::string& name, std::size_t least, Trial&& trial) {
  const std::vector<std::vector<std::uint8_t>> rows = corpus_of(name);
  EXPECT_GE(rows.size(), least);
  for (std::size_t n = 0; n < rows.size() && !testing::Test::HasFailure(); ++n) {
    SCOPED_TRACE(name + ", row " + std::to_string(n));
    trial(std::span<const std::uint8_t>(rows[n]));
  }
}

}  // namespace fovea_test
