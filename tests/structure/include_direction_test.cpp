// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// The layers of include/fovea (README.md there): a header includes only its own layer and lower
/// ones; within a layer, a subdirectory includes only those that it may; few headers include Eigen;
/// each layer's umbrella header includes all of it; only users of spectral need FFTW, only users of
/// io a JSON library, and only users of distributed MPI. Each rule is also broken on purpose, in a
/// copy.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

/// The header that a line includes; empty if it includes none.
std::string included_by(const std::string& line) {
  static const std::regex directive(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  std::smatch match;
  return std::regex_search(line, match, directive) ? std::string(match[1]) : std::string();
}

/// The names that a file includes, in order.
std::vector<std::string> includes_of(const fs::path& path) {
  std::vector<std::string> names;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.find('#') == std::string::npos) continue;
    if (std::string name = included_by(line); !name.empty()) names.push_back(std::move(name));
  }
  return names;
}

/// Every header below the directory, but fovea/compiled.hpp, which is a source of a program.
Headers read_headers(const fs::path& include) {
  Headers headers;
  for (const auto& entry : fs::recursive_directory_iterator(include)) {
    const std::string header = fs::relative(entry.path(), include).generic_string();
    if (entry.path().extension() != ".hpp" || header == "fovea/compiled.hpp") continue;
    headers[header] = includes_of(entry.path());
  }
  return headers;
}

/// The layer of a header, such as "core"; of an umbrella header its own stem; empty for fovea.hpp
/// and for headers of other libraries.
std::string layer_of(const std::string& header) {
  const std::string folder = "fovea/";
  if (header.compare(0, folder.size(), folder) != 0) return {};
  const std::string name =
      header.substr(folder.size(), header.find_first_of("/.", folder.size()) - folder.size());
  return name == "fovea" ? std::string() : name;
}

/// The layers that each layer may include, itself included.
const std::map<std::string, std::set<std::string>>& layers() {
  static const std::map<std::string, std::set<std::string>> all = {
      {"core", {"core"}},
      {"simd", {"core", "simd"}},
      {"kernels", {"core", "simd", "kernels"}},
      {"patterns", {"core", "patterns"}},
      {"spectral", {"core", "simd", "kernels", "spectral"}},
      {"attention", {"core", "simd", "kernels", "patterns", "attention"}},
      {"layers", {"core", "simd", "kernels", "patterns", "spectral", "attention", "layers"}},
      // Files contain parameters; operators are not needed.
      {"io", {"core", "layers", "io"}},
      // Distributed passes use operators; no other layer knows about ranks.
      {"distributed",
       {"core", "simd", "kernels", "patterns", "spectral", "attention", "distributed"}}};
  return all;
}

using Complaints = std::vector<std::string>;

/// The subdirectory of a header, such as "attention/softmax"; empty if it is in none.
std::string subdirectory_of(const std::string& header) {
  static const std::regex in_subdirectory(
      "^fovea/((attention|kernels|distributed)/[a-z_]+)/[^/]*$");
  std::smatch match;
  return std::regex_match(header, match, in_subdirectory) ? std::string(match[1]) : std::string();
}

/// The subdirectories that each may include, in addition to itself and lower layers. Those that are
/// not in the table may include what all of their layer may.
std::set<std::string> lower_subdirectories(const std::string& subdirectory) {
  static const std::map<std::string, std::set<std::string>> of_layer = {
      {"kernels", {}},
      {"attention", {"attention/call"}},
      {"distributed", {"distributed/messages", "distributed/rows"}}};
  static const std::map<std::string, std::set<std::string>> more = {
      {"attention/fmm", {"attention/linear", "attention/softmax"}},
      {"attention/smart_bird", {"attention/indexed"}},
      {"attention/fsat", {"attention/indexed", "attention/softmax"}},
      {"attention/nystroem", {"attention/softmax"}},
      {"attention/synthesizer", {"attention/softmax"}},
      {"distributed/linear", {"distributed/segments", "distributed/softmax"}},
      {"distributed/shared_rows", {"distributed/segments", "distributed/softmax"}},
      {"distributed/fsat", {"distributed/indexed"}}};
  std::set<std::string> all = of_layer.at(subdirectory.substr(0, subdirectory.find('/')));
  const auto found = more.find(subdirectory);
  if (found != more.end()) all.insert(found->second.begin(), found->second.end());
  // What a layer's subdirectories share: the rows of ranks are below their messages.
  if (subdirectory == "attention/call" || subdirectory == "distributed/rows") all.clear();
  if (subdirectory == "distributed/messages") all = {"distributed/rows"};
  return all;
}

/// Whether a subdirectory may include a header that is in none: the concepts of operators, what all
/// distributed passes use, and for FMM attention the operator of its band.
bool is_open_to(const std::string& subdirectory, const std::string& header) {
  static const std::set<std::string> open = {
      "fovea/attention/attention.hpp",      "fovea/kernels/unit.hpp",
      "fovea/distributed/communicator.hpp", "fovea/distributed/row_layout.hpp",
      "fovea/distributed/sharding.hpp",     "fovea/distributed/comm_stats.hpp"};
  static const std::set<std::pair<std::string, std::string>> of_near_field = {
      {"attention/fmm", "fovea/attention/local.hpp"}};
  return open.count(header) > 0 || of_near_field.count({subdirectory, header}) > 0;
}

Complaints includes_of_higher_layers(const Headers& headers) {
  Complaints complaints;
  for (const auto& [header, names] : headers) {
    if (header == "fovea/fovea.hpp") continue;
    const auto allowed = layers().find(layer_of(header));
    if (allowed == layers().end()) {
      complaints.push_back(header + " is in no layer");
      continue;
    }
    for (const std::string& name : names) {
      if (!name.starts_with("fovea/")) continue;
      if (headers.find(name) == headers.end()) {
        complaints.push_back(header + " includes " + name + ", which does not exist");
      } else if (allowed->second.count(layer_of(name)) == 0) {
        complaints.push_back(header + " includes " + name + ", which is in no lower layer");
      }
    }
  }
  return complaints;
}

Complaints includes_of_other_subdirectories(const Headers& headers) {
  Complaints complaints;
  for (const auto& [header, names] : headers) {
    const std::string subdirectory = subdirectory_of(header);
    if (subdirectory.empty()) continue;
    const std::set<std::string> lower = lower_subdirectories(subdirectory);
    for (const std::string& name : names) {
      if (layer_of(name) != layer_of(header) || subdirectory_of(name) == subdirectory) continue;
      const std::string other = subdirectory_of(name);
      if (other.empty() ? is_open_to(subdirectory, name) : lower.count(other) > 0) continue;
      complaints.push_back(header + " includes " + name + ", of another subdirectory");
    }
  }
  return complaints;
}

/// pool_job.hpp includes Eigen's pool and nothing else; layers use Eigen's matrices, and files
/// its 16-bit types.
Complaints includes_of_eigen(const Headers& headers) {
  Complaints complaints;
  for (const auto& [header, names] : headers) {
    if (header == "fovea/core/eigen.hpp" || header == "fovea/fovea.hpp") continue;
    for (const std::string& name : names) {
      const bool is_eigen = name.starts_with("Eigen/") || name.starts_with("unsupported/Eigen/");
      const bool is_pool = header == "fovea/core/pool_job.hpp" && name.ends_with("ThreadPool");
      const bool is_product =
          (layer_of(header) == "layers" || header == "fovea/io/dtype.hpp") && name == "Eigen/Core";
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

/// Bodies, the vector type and their dependencies are included by foreach_level.hpp; the headers
/// for Eigen and of the optional executors are included by users (fovea.hpp includes the one for
/// Eigen).
bool is_in_no_umbrella(const std::string& header) {
  return header.ends_with(".inl.hpp") || header.ends_with("/foreach_level.hpp") ||
         header == "fovea/simd/vec.hpp" || header == "fovea/simd/prelude.hpp" ||
         header.ends_with("/executor_openmp.hpp") || header.ends_with("/executor_tbb.hpp") ||
         header == "fovea/core/eigen.hpp";
}

/// Whether a header needs FFTW, which is under the GPL: such headers have their own umbrella.
bool is_spectral(const std::string& header) { return layer_of(header) == "spectral"; }

/// The header of an optional library is included by one header of its layer, and the layer is
/// reached neither from fovea.hpp nor from the umbrella of another layer.
Complaints includes_of_library(const Headers& headers, const std::string& library,
                               const std::string& its_own) {
  Complaints complaints;
  const std::string layer = layer_of(its_own);
  for (const auto& [header, names] : headers) {
    if (header != its_own && std::find(names.begin(), names.end(), library) != names.end()) {
      complaints.push_back(header + " includes " + library);
    }
    const bool is_umbrella = std::count(header.begin(), header.end(), '/') == 1;
    if (!is_umbrella || layer_of(header) == layer) continue;
    for (const std::string& reached : reached_from(headers, header)) {
      if (layer_of(reached) == layer) complaints.push_back(header + " reaches " + reached);
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

/// Whether a header is of a layer that only some programs need.
bool is_optional(const std::string& header) {
  const std::string layer = layer_of(header);
  return layer == "spectral" || layer == "io" || layer == "distributed";
}

/// Whether a header of another layer includes spectral: users include it by its name.
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
    const std::string umbrella = "fovea/" + layer_of(header) + ".hpp";
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
  Complaints all = includes_of_higher_layers(headers);
  for (const auto& rule : {includes_of_other_subdirectories, includes_of_eigen, includes_of_fftw,
                           includes_of_json, includes_of_mpi, missing_from_umbrellas}) {
    for (const std::string& complaint : rule(headers)) all.push_back(complaint);
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

/// The kernels and passes that the compiled form in one source lacks.
Complaints missing_in_compiled(Headers headers) {
  const std::string compiled = "fovea/compiled.hpp";
  headers[compiled] = includes_of(fs::path(FOVEA_SOURCE_DIR "/include") / compiled);
  const std::set<std::string> reached = reached_from(headers, compiled);
  Complaints missing;
  for (const auto& [header, names] : headers) {
    const std::string layer = layer_of(header);
    const bool is_table = layer == "kernels" && header.ends_with("/table.hpp");
    const bool is_pass = layer == "attention" && header.ends_with(".inl.hpp");
    if ((is_table || is_pass) && reached.count(header) == 0) missing.push_back(header);
  }
  return missing;
}

TEST(IncludeDirection, TheHeadersWereRead) {
  EXPECT_GT(our_headers().size(), 30u);
  const auto& names = our_headers().at("fovea/core/view.hpp");
  EXPECT_NE(std::find(names.begin(), names.end(), "fovea/core/error.hpp"), names.end());
}

TEST(IncludeDirection, OnlyLowerLayers) {
  EXPECT_EQ(joined(includes_of_higher_layers(our_headers())), "");
}

TEST(IncludeDirection, SubdirectoriesIncludeOnlyKnownOthers) {
  EXPECT_EQ(joined(includes_of_other_subdirectories(our_headers())), "");
}

TEST(IncludeDirection, FewHeadersIncludeEigen) {
  EXPECT_EQ(joined(includes_of_eigen(our_headers())), "");
}

TEST(IncludeDirection, UmbrellasIncludeTheirLayers) {
  EXPECT_EQ(joined(missing_from_umbrellas(our_headers())), "");
}

TEST(IncludeDirection, FftwIsOptional) { EXPECT_EQ(joined(includes_of_fftw(our_headers())), ""); }

TEST(IncludeDirection, JsonIsOptional) { EXPECT_EQ(joined(includes_of_json(our_headers())), ""); }

TEST(IncludeDirection, MpiIsOptional) { EXPECT_EQ(joined(includes_of_mpi(our_headers())), ""); }

/// Each rule is broken by a line that is added to a header, or by a new header.
TEST(IncludeDirection, ViolationsAreFound) {
  const std::string none_lower = ", which is in no lower layer";
  const std::string elsewhere = ", of another subdirectory";
  // The header, what it then includes, and what is said of that.
  const std::vector<std::array<std::string, 3>> included = {
      {"core/view.hpp", "fovea/simd/isa.hpp", none_lower},
      {"kernels/table.hpp", "fovea/patterns.hpp", none_lower},
      {"patterns/window.hpp", "fovea/simd/isa.hpp", none_lower},
      {"spectral/plan.hpp", "fovea/patterns.hpp", none_lower},
      {"kernels/spectral/cross.hpp", "fovea/spectral/fft_plan.hpp", none_lower},
      {"io/npy.hpp", "fovea/attention/full.hpp", none_lower},
      {"kernels/linear/table.hpp", "fovea/kernels/softmax/block.hpp", elsewhere},
      {"attention/call/check.hpp", "fovea/attention/full.hpp", elsewhere},
      {"attention/linear/forward.hpp", "fovea/attention/fmm/near_field.hpp", elsewhere},
      {"attention/cellar/check.hpp", "fovea/attention/linear/forward.hpp", elsewhere},
      {"distributed/rows/own_range.hpp", "fovea/distributed/messages/attention_calls.hpp",
       elsewhere},
      {"attention/full.hpp", "Eigen/Core", ""},
      {"core/pool_job.hpp", "Eigen/Core", ""},
      {"core/view.hpp", "fovea/core/eigen.hpp", ""},
      {"layers/linear.hpp", "unsupported/Eigen/CXX11/Tensor", ""},
      {"spectral/fft_plan.hpp", "fftw3.h", ""},
      {"distributed/sharding.hpp", "mpi.h", ""},
      {"io/npy.hpp", "nlohmann/json.hpp", ""}};
  const auto expect_complaint = [](const std::string& header, const std::string& name,
                                   const std::string& complaint) {
    Headers headers = our_headers();
    std::vector<std::string>& names = headers[header];
    if (!name.empty()) names.push_back(name);
    const std::string complaints = joined(all_complaints(headers));
    EXPECT_NE(complaints.find(complaint), std::string::npos) << complaint << "\n" << complaints;
  };
  for (const auto& [header, name, said] : included) {
    const std::string path = "fovea/" + header;
    expect_complaint(path, name, path + " includes " + name + said);
  }
  // An umbrella header reaches what most users do not need.
  expect_complaint("fovea/attention/full.hpp", "fovea/spectral/fftw.hpp",
                   "fovea/attention.hpp reaches fovea/spectral/fftw.hpp");
  expect_complaint("fovea/fovea.hpp", "fovea/spectral.hpp",
                   "fovea/fovea.hpp reaches fovea/spectral/hidden_state_cross.hpp");
  expect_complaint("fovea/layers.hpp", "fovea/layers/fsat_layer.hpp",
                   "fovea/layers.hpp reaches fovea/spectral/hidden_state_cross.hpp");
  expect_complaint("fovea/fovea.hpp", "fovea/io/npy.hpp",
                   "fovea/fovea.hpp reaches fovea/io/npy.hpp");
  // New headers.
  const std::vector<std::array<std::string, 2>> made = {
      {"fovea/cellar/view.hpp", "fovea/cellar/view.hpp is in no layer"},
      {"fovea/spectral/wavelet.hpp", "fovea/spectral.hpp lacks fovea/spectral/wavelet.hpp"},
      {"fovea/patterns/strided_new.hpp",
       "fovea/patterns.hpp lacks fovea/patterns/strided_new.hpp"}};
  for (const auto& [header, complaint] : made) expect_complaint(header, "", complaint);
}

TEST(IncludeDirection, CompiledFormHasAllKernelsAndPasses) {
  Headers headers = our_headers();
  EXPECT_EQ(joined(missing_in_compiled(headers)), "");
  headers["fovea/attention/linformer.hpp"].clear();
  EXPECT_EQ(missing_in_compiled(headers), Complaints{"fovea/attention/linformer.inl.hpp"});
}

/// Names are read from lines of both kinds, also with spaces.
TEST(IncludeDirection, LinesAreRead) {
  EXPECT_EQ(included_by("#  include <fovea/patterns.hpp>"), "fovea/patterns.hpp");
  EXPECT_EQ(included_by("#include \"fovea/simd/isa.hpp\""), "fovea/simd/isa.hpp");
  EXPECT_EQ(included_by("#pragma once"), "");
}

}  // namespace fovea_test::structure_include_direction
