// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// The floors of include/fovea: an include points only to the left of
/// core, simd, kernels, patterns, attention, layers, io, and beside layers distributed; within a
/// floor to the rooms that a room stands on; few headers know Eigen; each folder's umbrella header
/// holds the whole folder; only who includes spectral needs FFTW, only who includes io a library
/// for JSON, and only who includes distributed MPI. Each law is also broken on purpose, in a copy.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace fovea_test::structure_include_direction {

namespace fs = std::filesystem;

/// A header's path below include/ and the names that it includes, in order.
using Headers = std::map<std::string, std::vector<std::string>>;

/// Every header below the directory, but fovea/compiled.hpp, which is a source of a program.
Headers read_headers(const fs::path& include) {
  static const std::regex directive(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  Headers headers;
  for (const auto& entry : fs::recursive_directory_iterator(include)) {
    const std::string header = fs::relative(entry.path(), include).generic_string();
    if (entry.path().extension() != ".hpp" || header == "fovea/compiled.hpp") continue;
    std::vector<std::string>& names = headers[header];
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      std::smatch match;
      if (std::regex_search(line, match, directive)) names.push_back(match[1]);
    }
  }
  return headers;
}

/// The folder of a header, "core"; of an umbrella header its own stem; empty for fovea.hpp and for
/// what is not ours.
std::string floor_of(const std::string& header) {
  static const std::regex in_folder("^fovea/([a-z_]+)(/.*|\\.hpp)$");
  std::smatch match;
  if (!std::regex_match(header, match, in_folder) || match[1] == "fovea") return {};
  return match[1];
}

/// The floors that each floor may include, itself included.
const std::map<std::string, std::set<std::string>>& floors() {
  static const std::map<std::string, std::set<std::string>> all = [] {
    std::map<std::string, std::set<std::string>> map;
    std::set<std::string> left;
    for (const char* floor : {"core", "simd", "kernels", "patterns", "attention", "layers", "io"}) {
      left.insert(floor);
      map[floor] = left;
    }
    // Beside patterns: transforms and their kernels, used by attention and what follows it.
    map["spectral"] = {"core", "simd", "kernels", "spectral"};
    map["attention"].insert("spectral");
    map["layers"].insert("spectral");
    // Files know parameters, and no operator.
    map["io"] = {"core", "layers", "io"};
    // Messages know operators; no floor knows messages.
    map["distributed"] = {"core",      "simd",     "kernels",    "patterns",
                          "attention", "spectral", "distributed"};
    return map;
  }();
  return all;
}

using Complaints = std::vector<std::string>;

/// The room of a header within its floor, "attention/softmax"; empty for what stands in no room.
std::string room_of(const std::string& header) {
  static const std::regex in_room("^fovea/((attention|kernels|distributed)/[a-z_]+)/[^/]*$");
  std::smatch match;
  return std::regex_match(header, match, in_room) ? std::string(match[1]) : std::string();
}

/// The rooms that each room may include, beside itself and the floors to its left.
const std::map<std::string, std::set<std::string>>& rooms() {
  static const std::map<std::string, std::set<std::string>> all = {
      {"kernels/softmax", {}},
      {"kernels/linear", {}},
      {"kernels/indexed", {}},
      {"kernels/sketch", {}},
      {"kernels/sorting", {}},
      {"kernels/layers", {}},
      {"kernels/spectral", {}},
      {"attention/call", {}},
      {"attention/softmax", {"attention/call"}},
      {"attention/linear", {"attention/call"}},
      {"attention/indexed", {"attention/call"}},
      {"attention/fmm", {"attention/call", "attention/linear", "attention/softmax"}},
      {"attention/smart_bird", {"attention/call", "attention/indexed"}},
      {"attention/fsat", {"attention/call", "attention/indexed", "attention/softmax"}},
      {"attention/linformer", {"attention/call"}},
      {"attention/nystroem", {"attention/call", "attention/softmax"}},
      {"attention/sinkhorn", {"attention/call"}},
      {"attention/reformer", {"attention/call"}},
      {"attention/longformer", {"attention/call"}},
      {"attention/synthesizer", {"attention/call", "attention/softmax"}},
      {"distributed/rows", {}},
      {"distributed/messages", {"distributed/rows"}},
      {"distributed/segments", {"distributed/messages", "distributed/rows"}},
      {"distributed/softmax", {"distributed/messages", "distributed/rows"}},
      {"distributed/linear",
       {"distributed/messages", "distributed/rows", "distributed/segments", "distributed/softmax"}},
      {"distributed/shared_rows",
       {"distributed/messages", "distributed/rows", "distributed/segments", "distributed/softmax"}},
      {"distributed/indexed", {"distributed/messages", "distributed/rows"}},
      {"distributed/fsat", {"distributed/indexed", "distributed/messages", "distributed/rows"}},
      {"distributed/smart_bird",
       {"distributed/indexed", "distributed/messages", "distributed/rows"}},
      {"distributed/spectral", {"distributed/messages", "distributed/rows"}},
      {"distributed/synthesizer", {"distributed/messages", "distributed/rows"}}};
  return all;
}

/// The doors that a room may go through: what all operators are, what all ranks know, and for the
/// near field the operator that it is.
bool is_open_door(const std::string& room, const std::string& header) {
  static const std::set<std::string> open = {
      "fovea/attention/attention.hpp",      "fovea/kernels/unit.hpp",
      "fovea/distributed/communicator.hpp", "fovea/distributed/row_layout.hpp",
      "fovea/distributed/rows.hpp",         "fovea/distributed/traffic.hpp"};
  static const std::set<std::pair<std::string, std::string>> of_near_field = {
      {"attention/fmm", "fovea/attention/local.hpp"}};
  return open.count(header) > 0 || of_near_field.count({room, header}) > 0;
}

Complaints includes_to_the_right(const Headers& headers) {
  Complaints complaints;
  for (const auto& [header, names] : headers) {
    if (header == "fovea/fovea.hpp") continue;
    const auto allowed = floors().find(floor_of(header));
    if (allowed == floors().end()) {
      complaints.push_back(header + " is on no floor");
      continue;
    }
    for (const std::string& name : names) {
      if (!name.starts_with("fovea/")) continue;
      if (headers.find(name) == headers.end()) {
        complaints.push_back(header + " includes " + name + ", which does not exist");
      } else if (allowed->second.count(floor_of(name)) == 0) {
        complaints.push_back(header + " includes " + name + ", to its right");
      }
    }
  }
  return complaints;
}

Complaints includes_of_other_rooms(const Headers& headers) {
  Complaints complaints;
  for (const auto& [header, names] : headers) {
    const std::string room = room_of(header);
    if (room.empty()) continue;
    const auto allowed = rooms().find(room);
    if (allowed == rooms().end()) {
      complaints.push_back(header + " is in no room");
      continue;
    }
    for (const std::string& name : names) {
      if (floor_of(name) != floor_of(header) || room_of(name) == room) continue;
      if (room_of(name).empty() ? is_open_door(room, name)
                                : allowed->second.count(room_of(name)) > 0) {
        continue;
      }
      complaints.push_back(header + " includes " + name + ", of another room");
    }
  }
  return complaints;
}

/// thread_pool.hpp is there for Eigen's pool, and takes nothing else; layers use Eigen's matrices,
/// and files its 16-bit types.
Complaints includes_of_eigen(const Headers& headers) {
  Complaints complaints;
  for (const auto& [header, names] : headers) {
    if (header == "fovea/core/eigen.hpp" || header == "fovea/fovea.hpp") continue;
    for (const std::string& name : names) {
      const bool is_eigen = name.starts_with("Eigen/") || name.starts_with("unsupported/Eigen/");
      const bool is_pool = header == "fovea/core/thread_pool.hpp" && name.ends_with("ThreadPool");
      const bool is_product =
          (floor_of(header) == "layers" || header == "fovea/io/dtype.hpp") && name == "Eigen/Core";
      if (is_eigen && !is_pool && !is_product) complaints.push_back(header + " includes " + name);
      if (name == "fovea/core/eigen.hpp") complaints.push_back(header + " includes " + name);
    }
  }
  return complaints;
}

/// The headers that are reached from one, itself included.
std::set<std::string> reached_from(const Headers& headers, const std::string& header) {
  std::set<std::string> reached;
  const std::function<void(const std::string&)> visit = [&](const std::string& name) {
    const auto found = headers.find(name);
    if (found == headers.end() || !reached.insert(name).second) return;
    for (const std::string& next : found->second) visit(next);
  };
  visit(header);
  return reached;
}

/// Bodies come by way of foreach_level.hpp; Eigen's and the optional executors' headers are each
/// user's choice (fovea.hpp takes Eigen's).
bool is_in_no_umbrella(const std::string& header) {
  return header.ends_with(".inl.hpp") || header.ends_with("/foreach_level.hpp") ||
         header.ends_with("/executor_openmp.hpp") || header.ends_with("/executor_tbb.hpp") ||
         header == "fovea/core/eigen.hpp";
}

/// What is FFTW's, which is under the GPL and not everywhere: it has an umbrella of its own.
bool is_spectral(const std::string& header) { return floor_of(header) == "spectral"; }

/// The header of a library that not everybody has is included by one header of its floor, and the
/// floor is reached neither from fovea.hpp nor from the umbrella of another floor.
Complaints includes_of_library(const Headers& headers, const std::string& library,
                               const std::string& its_own) {
  Complaints complaints;
  const std::string floor = floor_of(its_own);
  for (const auto& [header, names] : headers) {
    if (header != its_own && std::find(names.begin(), names.end(), library) != names.end()) {
      complaints.push_back(header + " includes " + library);
    }
    const bool is_umbrella = std::count(header.begin(), header.end(), '/') == 1;
    if (!is_umbrella || floor_of(header) == floor) continue;
    for (const std::string& reached : reached_from(headers, header)) {
      if (floor_of(reached) == floor) complaints.push_back(header + " reaches " + reached);
    }
  }
  return complaints;
}

Complaints includes_of_fftw(const Headers& headers) {
  return includes_of_library(headers, "fftw3.h", "fovea/spectral/fftw.hpp");
}
Complaints includes_of_json(const Headers& headers) {
  return includes_of_library(headers, "nlohmann/json.hpp", "fovea/io/json_text.hpp");
}
Complaints includes_of_mpi(const Headers& headers) {
  return includes_of_library(headers, "mpi.h", "fovea/distributed/communicator.hpp");
}

/// Whether a header is of a floor that only some programs need, with an umbrella of its own.
bool is_optional(const std::string& header) {
  const std::string floor = floor_of(header);
  return floor == "spectral" || floor == "io" || floor == "distributed";
}

/// Whether a header of another floor is built on spectral: who wants one includes it by its name.
bool is_built_on_spectral(const Headers& headers, const std::string& header) {
  const auto reached = reached_from(headers, header);
  return !is_spectral(header) && std::any_of(reached.begin(), reached.end(), is_spectral);
}

Complaints missing_from_umbrellas(const Headers& headers) {
  Complaints complaints;
  const std::set<std::string> everything = reached_from(headers, "fovea/fovea.hpp");
  for (const auto& [header, names] : headers) {
    if (is_in_no_umbrella(header) || header == "fovea/fovea.hpp") continue;
    if (is_built_on_spectral(headers, header)) continue;
    if (everything.count(header) == 0 && !is_optional(header)) {
      complaints.push_back("fovea/fovea.hpp lacks " + header);
    }
    const std::string umbrella = "fovea/" + floor_of(header) + ".hpp";
    if (reached_from(headers, umbrella).count(header) == 0) {
      complaints.push_back(umbrella + " lacks " + header);
    }
  }
  if (everything.count("fovea/core/eigen.hpp") == 0) {
    complaints.push_back("fovea/fovea.hpp lacks fovea/core/eigen.hpp");
  }
  return complaints;
}

Complaints all_complaints(const Headers& headers) {
  Complaints all = includes_to_the_right(headers);
  for (const auto& law : {includes_of_other_rooms, includes_of_eigen, includes_of_fftw,
                          includes_of_json, includes_of_mpi, missing_from_umbrellas}) {
    for (const std::string& complaint : law(headers)) all.push_back(complaint);
  }
  return all;
}

std::string joined(const Complaints& complaints) {
  std::string text;
  for (const std::string& complaint : complaints) text += complaint + "\n";
  return text;
}

const Headers& our_headers() {
  static const Headers headers = read_headers(FOVEA_SOURCE_DIR "/include");
  return headers;
}

TEST(IncludeDirection, TheHeadersWereRead) {
  EXPECT_GT(our_headers().size(), 30u);
  const auto& names = our_headers().at("fovea/core/view.hpp");
  EXPECT_NE(std::find(names.begin(), names.end(), "fovea/core/error.hpp"), names.end());
}

TEST(IncludeDirection, PointsLeft) { EXPECT_EQ(joined(includes_to_the_right(our_headers())), ""); }

TEST(IncludeDirection, RoomsStandOnTheirNeighboursAlone) {
  EXPECT_EQ(joined(includes_of_other_rooms(our_headers())), "");
}

TEST(IncludeDirection, FewHeadersKnowEigen) {
  EXPECT_EQ(joined(includes_of_eigen(our_headers())), "");
}

TEST(IncludeDirection, UmbrellasHoldTheirFolders) {
  EXPECT_EQ(joined(missing_from_umbrellas(our_headers())), "");
}

TEST(IncludeDirection, FftwIsForThoseWhoAskForIt) {
  EXPECT_EQ(joined(includes_of_fftw(our_headers())), "");
}

TEST(IncludeDirection, JsonIsForThoseWhoAskForIt) {
  EXPECT_EQ(joined(includes_of_json(our_headers())), "");
}

TEST(IncludeDirection, MpiIsForThoseWhoAskForIt) {
  EXPECT_EQ(joined(includes_of_mpi(our_headers())), "");
}

/// A copy of include/ with a line added to one of its files, or with a new file.
class IncludeDirectionBroken : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
    copy_ = fs::path(testing::TempDir()) /
            ("fovea_structure_" + std::to_string(getpid()) + test->name());
    fs::remove_all(copy_);
    fs::copy(FOVEA_SOURCE_DIR "/include", copy_, fs::copy_options::recursive);
    ASSERT_EQ(joined(all_complaints(read_headers(copy_))), "");
  }
  void TearDown() override { fs::remove_all(copy_); }

  void expect_complaint(const std::string& header, const std::string& line,
                        const std::string& complaint) {
    fs::create_directories((copy_ / header).parent_path());
    std::ofstream(copy_ / header, std::ios::app) << line << "\n";
    EXPECT_NE(joined(all_complaints(read_headers(copy_))).find(complaint), std::string::npos)
        << complaint << "\n"
        << joined(all_complaints(read_headers(copy_)));
  }

 private:
  fs::path copy_;
};

TEST_F(IncludeDirectionBroken, ToTheRight) {
  expect_complaint("fovea/core/view.hpp", "#include \"fovea/simd/isa.hpp\"",
                   "fovea/core/view.hpp includes fovea/simd/isa.hpp, to its right");
  expect_complaint("fovea/kernels/table.hpp", "#  include <fovea/patterns.hpp>",
                   "fovea/kernels/table.hpp includes fovea/patterns.hpp, to its right");
}

TEST_F(IncludeDirectionBroken, ToSpectralFromPatterns) {
  expect_complaint("fovea/spectral/plan.hpp", "#include \"fovea/patterns.hpp\"",
                   "fovea/spectral/plan.hpp includes fovea/patterns.hpp, to its right");
  expect_complaint("fovea/kernels/spectral/cross.hpp", "#include \"fovea/spectral/fft_plan.hpp\"",
                   "cross.hpp includes fovea/spectral/fft_plan.hpp, to its right");
}

TEST_F(IncludeDirectionBroken, ToAnotherRoom) {
  expect_complaint("fovea/kernels/linear/table.hpp", "#include \"fovea/kernels/softmax/block.hpp\"",
                   "table.hpp includes fovea/kernels/softmax/block.hpp, of another room");
  expect_complaint("fovea/attention/call/check.hpp", "#include \"fovea/attention/full.hpp\"",
                   "check.hpp includes fovea/attention/full.hpp, of another room");
  expect_complaint("fovea/attention/linear/forward.hpp",
                   "#include \"fovea/attention/fmm/near_field.hpp\"",
                   "forward.hpp includes fovea/attention/fmm/near_field.hpp, of another room");
}

TEST_F(IncludeDirectionBroken, InNoRoom) {
  expect_complaint("fovea/attention/cellar/check.hpp", "",
                   "fovea/attention/cellar/check.hpp is in no room");
}

TEST_F(IncludeDirectionBroken, OnNoFloor) {
  expect_complaint("fovea/cellar/view.hpp", "", "fovea/cellar/view.hpp is on no floor");
}

TEST_F(IncludeDirectionBroken, Eigen) {
  expect_complaint("fovea/attention/full.hpp", "#include <Eigen/Core>",
                   "fovea/attention/full.hpp includes Eigen/Core");
  expect_complaint("fovea/core/thread_pool.hpp", "#include <Eigen/Core>",
                   "fovea/core/thread_pool.hpp includes Eigen/Core");
  expect_complaint("fovea/core/view.hpp", "#include \"fovea/core/eigen.hpp\"",
                   "fovea/core/view.hpp includes fovea/core/eigen.hpp");
  expect_complaint("fovea/layers/linear.hpp", "#include <unsupported/Eigen/CXX11/Tensor>",
                   "fovea/layers/linear.hpp includes unsupported/Eigen/CXX11/Tensor");
}

TEST_F(IncludeDirectionBroken, FftwForEverybody) {
  expect_complaint("fovea/spectral/fft_plan.hpp", "#include <fftw3.h>",
                   "fovea/spectral/fft_plan.hpp includes fftw3.h");
  expect_complaint("fovea/attention/full.hpp", "#include \"fovea/spectral/fftw.hpp\"",
                   "fovea/attention.hpp reaches fovea/spectral/fftw.hpp");
  expect_complaint("fovea/fovea.hpp", "#include \"fovea/spectral.hpp\"",
                   "fovea/fovea.hpp reaches fovea/spectral/hidden_state_cross.hpp");
  expect_complaint("fovea/layers.hpp", "#include \"fovea/layers/fsat_layer.hpp\"",
                   "fovea/layers.hpp reaches fovea/spectral/hidden_state_cross.hpp");
}

TEST_F(IncludeDirectionBroken, MpiForEverybody) {
  expect_complaint("fovea/distributed/rows.hpp", "#include <mpi.h>",
                   "fovea/distributed/rows.hpp includes mpi.h");
}

TEST_F(IncludeDirectionBroken, JsonForEverybody) {
  expect_complaint("fovea/io/npy.hpp", "#include <nlohmann/json.hpp>",
                   "fovea/io/npy.hpp includes nlohmann/json.hpp");
  expect_complaint("fovea/fovea.hpp", "#include \"fovea/io/npy.hpp\"",
                   "fovea/fovea.hpp reaches fovea/io/npy.hpp");
  expect_complaint("fovea/io/npy.hpp", "#include \"fovea/attention/full.hpp\"",
                   "fovea/io/npy.hpp includes fovea/attention/full.hpp, to its right");
}

TEST_F(IncludeDirectionBroken, NotInTheUmbrella) {
  expect_complaint("fovea/spectral/wavelet.hpp", "#pragma once",
                   "fovea/spectral.hpp lacks fovea/spectral/wavelet.hpp");
  expect_complaint("fovea/patterns/strided_new.hpp", "#pragma once",
                   "fovea/patterns.hpp lacks fovea/patterns/strided_new.hpp");
}

}  // namespace fovea_test::structure_include_direction
