// SPDX-License-Identifier: MIT
/// \file
/// JSON from untrusted files. Needs nlohmann_json.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// Parses a text as one JSON value; discarded if it is not valid, or nested deeper than `deepest`.
/// \param key called with the depth of an object, from 0 on, and the name of each of its members;
/// with the depth and null at its begin
template <class F>
nlohmann::json parse_json(std::string_view text, int deepest, F&& key) {
  using Json = nlohmann::json;
  // The parser skips a byte order mark, and stops at a NUL. Neither is JSON.
  if (text.starts_with('\xef') || text.find('\0') != text.npos) return Json::value_t::discarded;
  bool too_deep = false;
  const auto look = [&](int depth, Json::parse_event_t event, Json& value) {
    const bool opens_object = event == Json::parse_event_t::object_start;
    if ((opens_object || event == Json::parse_event_t::array_start) && depth >= deepest) {
      too_deep = true;
    }
    if (too_deep) return false;
    if (opens_object) key(depth, nullptr);
    if (event == Json::parse_event_t::key) {
      key(depth - 1, &value.template get_ref<const Json::string_t&>());
    }
    return true;
  };
  Json parsed = Json::parse(text.begin(), text.end(), look, false);
  return too_deep ? Json(Json::value_t::discarded) : parsed;
}

FOVEA_NAMESPACE_END
