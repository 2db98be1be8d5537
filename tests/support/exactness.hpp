// SPDX-License-Identifier: MIT
/// \file
/// Statistics of the comparators: the worst error of every operator, result, type and level, and
/// how many results were compared by bits. With FOVEA_EXACTNESS=FOLDER each test program writes
/// them there for tests/exactness/tables.py.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>

#include "fovea/simd/isa.hpp"

namespace fovea_test {

template <class T>
constexpr const char* scalar_name() {
  return std::is_same_v<T, float> ? "float" : "double";
}

/// Whose result is compared, and which: "linear_2_maps", "d_q". Without a name nothing is kept.
struct Judged {
  std::string name = {};
  std::string result = {};
};

/// The tables of one test program, filled from any thread.
class Exactness : public testing::Environment {
 public:
  /// Registered before the first test, so that its contents are written after the last.
  static Exactness& get() {
    static auto* const table =
        static_cast<Exactness*>(testing::AddGlobalTestEnvironment(new Exactness));
    return *table;
  }

  /// An error of `count` elements of type T, in units of `kind` ("ratio", "ulp"), at the level in
  /// use. NaN counts as the worst.
  template <class T>
  void error(const char* kind, const Judged& of, double worst, std::uint64_t count) {
    if (of.name.empty()) return;
    const std::string key = std::string(kind) + "\t" + of.name + "\t" + of.result + "\t" +
                            scalar_name<T>() + "\t" + fovea::name(fovea::isa_level());
    const std::lock_guard lock(mutex_);
    Worst& row = errors_[key];
    if (!(worst <= row.worst) && !std::isnan(row.worst)) row.worst = worst;
    row.count += count;
  }

  /// A comparison of `count` elements by bits, made by the test that runs.
  void bits(std::uint64_t count) {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    if (test == nullptr) return;
    std::string name = test->name();
    name.resize(std::min(name.find('/'), name.size()));
    const std::lock_guard lock(mutex_);
    Compared& row = compared_[name];
    ++row.comparisons;
    row.elements += count;
  }

  /// One line for each row, with tabs; the kind of the row first.
  void TearDown() override {
    const char* folder = std::getenv("FOVEA_EXACTNESS");
    if (folder == nullptr) return;
    std::ofstream file(std::string(folder) + "/" + std::to_string(::getpid()) + ".tsv");
    for (const auto& [key, row] : errors_) {
      file << key << '\t' << row.worst << '\t' << row.count << '\n';
    }
    for (const auto& [test, row] : compared_) {
      file << "bits\t" << test << '\t' << row.comparisons << '\t' << row.elements << '\n';
    }
    EXPECT_TRUE(file.flush()) << "FOVEA_EXACTNESS: cannot write into " << folder;
  }

 private:
  struct Worst {
    double worst = 0;
    std::uint64_t count = 0;
  };
  struct Compared {
    std::uint64_t comparisons = 0;
    std::uint64_t elements = 0;
  };
  std::mutex mutex_;
  std::map<std::string, Worst> errors_;
  std::map<std::string, Compared> compared_;
};

/// In every program that includes this header.
inline Exactness& exactness = Exactness::get();

}  // namespace fovea_test
