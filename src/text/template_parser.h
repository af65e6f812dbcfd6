// Template text -> TemplateAst. Errors give line and column and name what is outside the subset.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/template_ast.h"

namespace halfbyte {

Result<std::unique_ptr<const TemplateAst>> parse_template(std::string_view source, const std::string& name,
                                                          const TemplateLimits& limits);

}  // namespace halfbyte
