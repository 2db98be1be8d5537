// SPDX-License-Identifier: MIT
// fovea_test(NEEDS io icu)
// The trials of the fuzzer, with files that a seeded generator modified: the same in every run.
#include "fuzz/model_files.hpp"

#include <gtest/gtest.h>

#include "fuzz/corpus.hpp"
#include "support/scratch_folder.hpp"

namespace fovea_test::fuzz_model_files {

bool reads(const std::string& bytes) {
  return read_model_file(std::as_bytes(std::span<const char>(bytes)));
}

TEST(ModelFiles, StartFromValidFiles) {
  const ScratchFolder folder;
  const auto seeds = model_file_seeds(folder / "seed");
  EXPECT_EQ(seeds.size(), 5u);
  for (const std::string& seed : seeds) {
    EXPECT_TRUE(reads(seed));
    for (std::size_t size = 0; size < seed.size(); ++size) {
      // The data of a tensor of GGUF may be followed by bytes that fill it up.
      if (size + 32 < seed.size() || !seed.starts_with("GGUF")) {
        EXPECT_FALSE(reads(seed.substr(0, size)));
      }
    }
  }
}

TEST(ModelFiles, ChangedBytesDoNoHarm) {
  const ScratchFolder folder;
  const auto seeds = model_file_seeds(folder / "seed");
  Draw draw(3);
  const auto below = [&](std::size_t end) {
    return static_cast<std::size_t>(draw(0, static_cast<Index>(end) - 1));
  };
  Index accepted = 0;
  for (int round = 0; round < 12000; ++round) {
    std::string bytes = seeds[below(seeds.size())];
    for (int change = 0; change <= round % 4; ++change) {
      const std::size_t at = below(bytes.size());
      switch (draw(0, 4)) {
        case 0:
          bytes[at] = static_cast<char>(draw(0, 255));
          break;
        case 1:
          bytes[at] = R"({}[]()'",:0123456789-+eE.\untf)"[draw(0, 29)];
          break;
        case 2:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << draw(0, 7)));
          break;
        case 3:
          bytes.erase(at, below(9));
          break;
        default:
          bytes.insert(at, bytes.substr(below(bytes.size()), below(9)));
          break;
      }
      if (bytes.empty()) bytes = "{";
    }
    accepted += reads(bytes) ? 1 : 0;
  }
  EXPECT_GT(accepted, 1000) << "bytes of data may be any";
  EXPECT_LT(accepted, 11000);
}

/// The corpus of libFuzzer: inputs that reach different code.
TEST(ModelFiles, TheCorpusPassesSafely) {
  Index accepted = 0;
  each_kept("model_files", 500, [&](std::span<const std::uint8_t> bytes) {
    accepted += read_model_file(std::as_bytes(bytes)) ? 1 : 0;
  });
  EXPECT_GT(accepted, 50);
}

}  // namespace fovea_test::fuzz_model_files
