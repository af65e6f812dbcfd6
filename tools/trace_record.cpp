#include "trace_record.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/quote.h"
#include "json_text.h"

namespace halfbyte::tools {

extern const std::string_view kTracePage;  // trace_page.html

namespace {

using Json = nlohmann::ordered_json;

// Four digits say all that a reader can use, and keep the page of a long answer small.
double rounded(double x) {
  return std::round(x * 1e4) / 1e4;
}

Json full_json(const TraceToken& t) {
  Json out{{"index", t.index},
           {"token", t.token},
           {"text", t.text},
           {"reasoning", t.reasoning},
           {"entropy", t.entropy},
           {"step_mean", t.step_mean},
           {"running_mean", t.running_mean},
           {"threshold", nullptr},
           {"temperature", as_typed(t.temperature)},
           {"boundary", t.boundary},
           {"uncertain", t.uncertain}};
  if (t.threshold) out["threshold"] = *t.threshold;
  out["top"] = Json::array();
  for (const TraceCandidate& c : t.top)
    out["top"].push_back({{"token", c.token}, {"text", c.text}, {"before", c.before}, {"after", c.after}});
  if (t.forced) out["forced"] = true;
  if (t.other)
    out["other"] = {{"token", t.other->token},
                    {"text", t.other->text},
                    {"entropy", t.other->entropy},
                    {"probability", t.other->probability}};
  return out;
}

// Rows without names: the page of 10,000 tokens stays near 2 MB. The order is trace_page.html's.
Json short_json(const TraceToken& t) {
  Json top = Json::array();
  for (const TraceCandidate& c : t.top) top.push_back({c.text, rounded(c.before), rounded(c.after)});
  Json row = {t.text,
              rounded(t.entropy),
              rounded(t.step_mean),
              rounded(t.running_mean),
              t.threshold ? Json(rounded(*t.threshold)) : Json(nullptr),
              rounded(t.temperature),
              (t.boundary ? 1 : 0) + (t.uncertain ? 2 : 0) + (t.reasoning ? 4 : 0),
              t.token,
              top};
  if (t.other) row.push_back({t.other->token, t.other->text, rounded(t.other->entropy), rounded(t.other->probability)});
  return row;
}

// Inside a script element nothing may look like its end.
std::string script_safe(std::string json) {
  for (size_t at = 0; (at = json.find('<', at)) != std::string::npos; at += 6) json.replace(at, 1, "\\u003c");
  return json;
}

}  // namespace

std::string trace_json_line(const TraceToken& token) {
  return json_text(full_json(token), /*indent=*/-1);
}

std::string trace_page(const TraceHead& head, std::span<const TraceToken> tokens) {
  Json data{{"model", head.model},       {"plan", head.plan},
            {"sampling", head.sampling}, {"prompt", head.prompt},
            {"other", head.other_plan},  {"high", head.t_high ? Json(rounded(*head.t_high)) : Json(nullptr)},
            {"tokens", Json::array()}};
  for (const TraceToken& t : tokens) data["tokens"].push_back(short_json(t));
  constexpr std::string_view kMark = "/*DATA*/null";
  std::string page(kTracePage);
  return page.replace(page.find(kMark), kMark.size(), script_safe(json_text(data, -1)));
}

}  // namespace halfbyte::tools
