// How Python writes values: str(), repr(), json.dumps() as transformers' tojson calls it. User marks survive.
#pragma once

#include <optional>
#include <string>

#include "text/template_value.h"

namespace halfbyte {

// repr(float): the shortest digits that read back, with Python's rules for exponents.
std::string python_float(double value);

// Appends str(value); undefined appends nothing.
Status append_str(TemplateBudget& budget, const TemplateValue& value, TextBuilder& out);
Result<TemplateValue> to_str(TemplateBudget& budget, const TemplateValue& value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level's text; none: one line
  std::string item_separator = ", ";  // "," by default when there is an indent
  std::string key_separator = ": ";
};
Result<TemplateValue> to_json(TemplateBudget& budget, const TemplateValue& value, const JsonStyle& style);

}  // namespace halfbyte
