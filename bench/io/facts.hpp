// SPDX-License-Identifier: MIT
/// \file
/// The program, the moment, the command and the machine of a result, as JSON.
#pragma once

#include <ctime>
#include <string>
#include <vector>

#include "bench/io/json_writer.hpp"
#include "bench/measure/machine.hpp"

namespace bench {

/// "2026-01-31T12:00:00Z".
inline std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

/// Writes the context of every measurement.
inline void write_facts(JsonWriter& json, const char* program,
                        const std::vector<std::string>& command) {
  json.member("program", program);
  json.member("date", utc_now());
  json.begin_array("command");
  for (const std::string& word : command) json.value(word);
  json.end();
  json.begin_object("machine");
  for (const auto& [key, value] : machine_facts()) json.member(key, value);
  json.end();
}

}  // namespace bench
