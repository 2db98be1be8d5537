// SPDX-License-Identifier: MIT
/// \file
/// Results of the programs in JSON: what all of them say of themselves, and how they are read back.
/// Test: tests/bench/io/compare_against_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/io/human.hpp"
#include "bench/io/read_file.hpp"

namespace bench {

/// The members of an object stay in their order.
using Json = nlohmann::ordered_json;

/// The program, the moment, the command and the machine: the context of every measurement.
inline Json facts(const char* program, const std::vector<std::string>& command,
                  const std::vector<std::pair<std::string, std::string>>& machine) {
  Json json = {{"program", program}, {"date", utc_now()}, {"command", command}};
  for (const auto& [key, value] : machine) json["machine"][key] = value;
  return json;
}

/// The text of a file. Numbers that are not finite are null; bytes that are no UTF-8, U+FFFD.
inline std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

/// What `read` makes of the JSON of a file. \throws std::runtime_error if it is not a result of
/// that program
template <class Read>
auto read_result(const std::string& file, const std::string& program, const Read& read) {
  try {
    const Json json = Json::parse(read_file(file));
    if (json.at("program") != program) throw std::invalid_argument("it names another program");
    return read(json);
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(file + ": is not a result of " + program + ": " + error.what());
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(file + ": is not a result of " + program + ": " + error.what());
  }
}

}  // namespace bench
