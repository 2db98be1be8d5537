// SPDX-License-Identifier: MIT
/// \file
/// The context of every measurement: processor, level, compiler, flags, versions.
#pragma once

#include <Eigen/Core>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fovea/core/config.hpp"
#include "fovea/simd/isa.hpp"

namespace bench {

using fovea::Index;

/// "/proc/cpuinfo: model name", or what the compiler knows.
inline std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
#if defined(__aarch64__)
  return "AArch64";
#else
  return "unknown";
#endif
}

inline std::string compiler_name() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "gcc " __VERSION__;
#else
  return "unknown";
#endif
}

inline std::string eigen_version() {
  return std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) + "." +
         std::to_string(EIGEN_MINOR_VERSION);
}

inline std::string fovea_version() {
  return std::to_string(FOVEA_VERSION_MAJOR) + "." + std::to_string(FOVEA_VERSION_MINOR) + "." +
         std::to_string(FOVEA_VERSION_PATCH);
}

/// The commit of the sources below a folder, from its .git; "unknown" if it is no clone.
inline std::string commit_of(const std::string& root) {
  const auto first_word = [](const std::string& file) {
    std::string word;
    std::ifstream(file) >> word;
    return word;
  };
  std::string word;
  std::string name;
  std::ifstream(root + "/.git/HEAD") >> word >> name;
  if (word != "ref:") return word.empty() ? "unknown" : word;
  word = first_word(root + "/.git/" + name);
  std::ifstream packed(root + "/.git/packed-refs");
  for (std::string hash, ref; word.empty() && packed >> hash >> ref;) {
    if (ref == name) word = hash;
  }
  return word.empty() ? "unknown" : word;
}

#if defined(FOVEA_BENCH_FLAGS)
/// The facts of a program as (key, value), in the order of printing.
inline std::vector<std::pair<std::string, std::string>> machine_facts() {
  return {{"cpu", cpu_name()},
          {"hardware_threads", std::to_string(std::thread::hardware_concurrency())},
          {"isa_level", fovea::name(fovea::isa_level())},
          {"compiler", compiler_name()},
          {"flags", FOVEA_BENCH_FLAGS},
          {"baseline_flags", "-O3 -march=native (Eigen's baselines only)"},
          {"eigen", eigen_version()},
          {"fovea", fovea_version()},
          {"commit", commit_of(FOVEA_SOURCE_DIR)}};
}
#endif

/// Bytes of available memory without paging; a large number if the system does not report it.
inline Index available_bytes() {
  std::ifstream info("/proc/meminfo");
  std::string key;
  Index kib = 0;
  for (std::string unit; info >> key >> kib;) {
    if (key == "MemAvailable:") return kib * 1024;
    std::getline(info, unit);
  }
  return Index{1} << 46;
}

}  // namespace bench
