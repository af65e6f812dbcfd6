// Reads one JSON object a line: {template, messages, tools?, kwargs?, add_generation_prompt?, bos_token?, eos_token?,
// now?} and writes one a line: {"text": ..., "user": [[begin, end], ...]} or {"error": ...}. The Python tests compare
// the texts with jinja2's.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "text/chat_template.h"

namespace {

using Json = nlohmann::ordered_json;

Json render_line(const Json& job) {
  const auto text = [&](const char* key) {
    return job.contains(key) && job[key].is_string() ? job[key].get<std::string>() : "";
  };
  const auto parsed = halfbyte::ChatTemplate::parse(text("template"), "template");
  if (!parsed.ok()) return {{"error", parsed.status().message()}};
  halfbyte::ChatRenderOptions options;
  options.add_generation_prompt = job.value("add_generation_prompt", true);
  options.bos_token = text("bos_token");
  options.eos_token = text("eos_token");
  if (job.contains("now")) options.now_unix = job["now"].get<int64_t>();
  if (job.contains("tools") && !job["tools"].is_null()) options.tools_json = job["tools"].dump();
  if (job.contains("kwargs")) {
    for (const auto& [key, value] : job["kwargs"].items()) options.kwargs_json.emplace_back(key, value.dump());
  }
  const auto pieces = (*parsed)->render_json(job["messages"].dump(), options);
  if (!pieces.ok()) return {{"error", pieces.status().message()}};
  Json user = Json::array();
  std::string all;
  for (const auto& piece : *pieces) {
    if (piece.user) user.push_back({all.size(), all.size() + piece.text.size()});
    all += piece.text;
  }
  return {{"text", all}, {"user", user}};
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) std::cout << render_line(Json::parse(line)).dump() << "\n";
  return 0;
}
